"""Several members of a group of the new protocol: who gives up what, and who gets it when."""

from __future__ import annotations

import time
from typing import Any

from tests.conformance.consumers import Consumer, eager_group, joined, known_topic, settled
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import beat, describe_consumer_groups, enter, owned
from tests.conformance.script import Script, Topic

exchanges = Exchanges("consumer_rebalances")


def acknowledge(script: Script, group: str, member: Consumer, topic: Topic, *partitions: int, epoch: int = 0) -> Any:
    """A beat with what the member has left."""
    request = beat(group, member.id, epoch or member.epoch, topic_partitions=owned({topic: partitions}))
    return script.send(request)


@exchanges.one
def a_second_member_step_by_step(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=4)
    first = joined(script, group, "first", topic)
    second = script.name("second")
    script.send(enter(group, second, topic.name))
    script.send(describe_consumer_groups(group))
    acknowledge(script, group, first, topic, 0, 1, 2, 3)
    script.send(describe_consumer_groups(group))
    script.send(beat(group, second, first.epoch + 1))
    acknowledge(script, group, first, topic, 0, 1, 2)
    acknowledge(script, group, first, topic, 0, 1)
    script.send(beat(group, second, first.epoch + 1))
    script.send(beat(group, first.id, first.epoch + 1))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_second_member_within_the_interval(script: Script) -> None:
    group, topic = script.group(), known_topic(script, partitions=2)
    first = joined(script, group, "first", topic)
    script.send(enter(group, script.name("second"), topic.name))
    script.send(describe_consumer_groups(group))
    script.send(beat(group, first.id, first.epoch))
    time.sleep(1.1)
    script.send(beat(group, first.id, first.epoch))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_second_member_after_the_interval(script: Script) -> None:
    group, topic = script.group(), known_topic(script, partitions=2)
    joined(script, group, "first", topic)
    time.sleep(1.1)
    script.send(enter(group, script.name("second"), topic.name))
    script.send(describe_consumer_groups(group))


@exchanges.cases({"uniform": "uniform", "range": "range"})
def three_members(script: Script, assignor: str) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=6)
    members = [joined(script, group, label, topic, server_assignor=assignor) for label in ("a", "b", "c")]
    settled(script, group, topic, *members)
    script.send(describe_consumer_groups(group))


@exchanges.one
def more_members_than_partitions(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    members = [joined(script, group, label, topic) for label in ("a", "b", "c")]
    settled(script, group, topic, *members)
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_member_leaves_and_the_other_takes_over(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=4)
    first, second = settled(
        script, group, topic, joined(script, group, "first", topic), joined(script, group, "second", topic)
    )
    script.send(beat(group, second.id, -1))
    script.send(beat(group, first.id, first.epoch))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_member_joins_while_another_gives_up(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=6)
    first = joined(script, group, "first", topic)
    second = joined(script, group, "second", topic)
    script.send(beat(group, first.id, first.epoch))
    third = joined(script, group, "third", topic)
    script.send(describe_consumer_groups(group))
    acknowledge(script, group, first, topic, 0, 1, 2)
    acknowledge(script, group, first, topic, 0, 1, epoch=first.epoch)
    script.send(beat(group, second.id, second.epoch))
    script.send(beat(group, third.id, third.epoch))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_member_that_does_not_give_up_in_time_is_removed(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    first = joined(script, group, "first", topic, rebalance_timeout_ms=400)
    second = joined(script, group, "second", topic)
    script.send(beat(group, first.id, first.epoch))
    script.ask_until(describe_consumer_groups(group), until=lambda answer: len(answer.groups[0].members) == 1)
    script.send(beat(group, first.id, first.epoch))
    script.send(beat(group, second.id, second.epoch))
    script.send(describe_consumer_groups(group))


@exchanges.one
def members_of_different_subscriptions(script: Script) -> None:
    group = eager_group(script)
    one, two = known_topic(script, "one", partitions=3), known_topic(script, "two")
    script.send(enter(group, script.name("a"), one.name))
    script.send(enter(group, script.name("b"), two.name))
    script.send(enter(group, script.name("c"), one.name, two.name))
    script.send(describe_consumer_groups(group))


@exchanges.one
def the_assignor_of_most_members(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    for label, assignor in (("a", "range"), ("b", "uniform"), ("c", "range"), ("d", None)):
        script.ask(enter(group, script.name(label), topic.name, server_assignor=assignor))
    script.send(describe_consumer_groups(group))


@exchanges.cases({"range first": ("range", "uniform"), "uniform first": ("uniform", "range")})
def as_many_members_for_one_assignor_as_for_the_other(script: Script, assignors: tuple[str, str]) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    for label, assignor in zip("ab", assignors, strict=True):
        script.ask(enter(group, script.name(label), topic.name, server_assignor=assignor))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_static_member_comes_back(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    old = joined(script, group, "old", topic, instance_id="instance")
    script.send(beat(group, old.id, -2, instance_id="instance"))
    script.send(describe_consumer_groups(group))
    script.send(beat(group, old.id, old.epoch, instance_id="instance"))
    script.send(enter(group, script.name("new"), topic.name, instance_id="instance"))
    script.send(beat(group, old.id, old.epoch, instance_id="instance"))
    script.send(beat(group, old.id, old.epoch))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_static_member_comes_back_with_another_subscription(script: Script) -> None:
    group, topic, other = eager_group(script), known_topic(script), known_topic(script, "other")
    old = joined(script, group, "old", topic, instance_id="instance")
    script.ask(beat(group, old.id, -2, instance_id="instance"))
    script.send(enter(group, script.name("new"), other.name, instance_id="instance"))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_static_member_comes_back_under_its_own_id(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script)
    old = joined(script, group, "old", topic, instance_id="instance")
    script.ask(beat(group, old.id, -2, instance_id="instance"))
    script.send(enter(group, old.id, topic.name, instance_id="instance"))


@exchanges.one
def an_instance_that_is_in_use(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script)
    old = joined(script, group, "old", topic, instance_id="instance")
    new = script.name("new")
    script.send(enter(group, new, topic.name, instance_id="instance"))
    script.send(beat(group, new, old.epoch, instance_id="instance"))
    script.send(beat(group, new, -1, instance_id="instance"))
    script.send(beat(group, new, -2, instance_id="instance"))
    script.send(beat(group, old.id, old.epoch, instance_id="nobody"))
    script.send(beat(group, old.id, -1, instance_id="nobody"))
    script.send(beat(group, old.id, -2, instance_id="nobody"))
    script.send(beat(group, old.id, old.epoch))
    script.send(enter(group, old.id, topic.name))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_static_member_leaves_for_good(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script)
    old = joined(script, group, "old", topic, instance_id="instance")
    script.send(beat(group, old.id, -1, instance_id="instance"))
    script.send(beat(group, old.id, old.epoch, instance_id="instance"))
    script.send(enter(group, script.name("new"), topic.name, instance_id="instance"))


@exchanges.one
def a_static_member_is_away_and_another_joins(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=4)
    old = joined(script, group, "old", topic, instance_id="instance")
    script.ask(beat(group, old.id, -2, instance_id="instance"))
    script.send(enter(group, script.name("second"), topic.name))
    script.send(describe_consumer_groups(group))
    script.send(enter(group, script.name("new"), topic.name, instance_id="instance"))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_static_member_leaves_for_a_while_instead_of_giving_up(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=4)
    first = joined(script, group, "first", topic, instance_id="instance", rebalance_timeout_ms=500)
    second = joined(script, group, "second", topic)
    script.send(beat(group, first.id, first.epoch, instance_id="instance"))
    script.send(beat(group, first.id, -2, instance_id="instance"))
    time.sleep(1)
    script.send(beat(group, second.id, second.epoch))
    script.send(enter(group, script.name("third"), topic.name, instance_id="instance"))
    script.send(describe_consumer_groups(group))
