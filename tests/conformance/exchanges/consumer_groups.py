"""ConsumerGroupHeartbeat by one member: how it joins, what is refused, and how it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.conformance.consumers import eager_group, joined, known_topic
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    beat,
    commit,
    describe_consumer_groups,
    describe_groups,
    enter,
    heartbeat,
    leave,
    owned,
    sync,
)
from tests.conformance.requests import UNKNOWN, create_partitions, delete_topics
from tests.conformance.script import Script

exchanges = Exchanges("consumer_groups")


@exchanges.versions((0, 1))
def a_member_joins(script: Script, version: int) -> None:
    group, topic = script.group(), known_topic(script, partitions=3)
    script.send(enter(group, script.name("member"), topic.name), version)
    script.send(describe_consumer_groups(group), version)


@exchanges.one
def a_member_that_is_given_an_id(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    answer = script.send(enter(group, "", topic.name), 0, on="a")
    script.send(beat(group, answer.member_id, answer.member_epoch), 0)


REFUSED: dict[str, Mapping[str, Any]] = {
    "no rebalance timeout": {"rebalance_timeout_ms": -1},
    "owned partitions that are null": {"topic_partitions": None},
    "neither names nor a regex": {"subscribed_topic_names": None},
    "an empty instance": {"instance_id": ""},
    "an empty rack": {"rack_id": ""},
    "an unknown assignor": {"server_assignor": "sticky"},
    "an empty assignor": {"server_assignor": ""},
    "an assignor in capitals": {"server_assignor": "Uniform"},
}


@exchanges.cases(REFUSED)
def a_join_with(script: Script, options: Mapping[str, Any]) -> None:
    group, topic = script.group(), known_topic(script)
    for version in (0, 1):
        script.send(enter(group, script.name("member"), topic.name, **options), version)
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_join_with_owned_partitions(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    script.send(enter(group, script.name("member"), topic.name, topic_partitions=owned({topic: [0]})))
    script.send(enter(group, script.name("member"), topic.name, topic_partitions=owned({topic: []})))


@exchanges.one
def a_join_without_a_member_id(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    script.send(enter(group, "", topic.name), 1)
    for epoch in (1, -1, -2):
        for version in (0, 1):
            script.send(beat(group, "", epoch), version)


@exchanges.versions((0, 1))
def a_group_of_no_name(script: Script, version: int) -> None:
    script.group()
    script.send(enter("", script.name("member"), "topic"), version)
    script.send(beat("", script.name("member"), 1), version)
    script.send(beat("", script.name("member"), -1), version)


@exchanges.cases({"-3": -3, "-100": -100, "the least": -(2**31)})
def an_epoch_of(script: Script, epoch: int) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, epoch))


ACCEPTED: dict[str, Mapping[str, Any]] = {
    "a rebalance timeout of 0": {"rebalance_timeout_ms": 0},
    "a rebalance timeout of -2": {"rebalance_timeout_ms": -2},
    "no topics": {"subscribed_topic_names": []},
    "an instance": {"instance_id": "instance"},
    "a rack": {"rack_id": "rack"},
    "the range assignor": {"server_assignor": "range"},
    "the uniform assignor": {"server_assignor": "uniform"},
    "an empty regex": {"subscribed_topic_regex": ""},
    "the same topic twice": {"subscribed_topic_names": ["a", "a"]},
    "topics that are not there": {"subscribed_topic_names": ["nobody-made-this", "", "a/b"]},
}


@exchanges.cases(ACCEPTED)
def a_member_joins_with(script: Script, options: Mapping[str, Any]) -> None:
    group, topic = script.group(), known_topic(script)
    script.send(enter(group, script.name("member"), topic.name, **options))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_member_beats(script: Script) -> None:
    group, topic = script.group(), known_topic(script, partitions=2)
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, member.epoch), 0)
    script.send(beat(group, member.id, member.epoch), 1)
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({topic: [0, 1]})))
    script.send(beat(group, member.id, member.epoch, topic_partitions=[]))
    full = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [topic.name]}
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({topic: [0, 1]}), **full))


@exchanges.one
def a_member_joins_again(script: Script) -> None:
    group, topic = script.group(), known_topic(script, partitions=2)
    member = joined(script, group, "member", topic)
    script.send(enter(group, member.id, topic.name))
    script.send(enter(group, member.id, topic.name))
    script.send(describe_consumer_groups(group))


@exchanges.cases({"one later": 1, "one earlier": -1, "two earlier": -2, "much later": 100})
def a_beat_with_an_epoch(script: Script, shift: int) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    epoch = member.epoch + shift
    script.send(beat(group, member.id, epoch))
    script.send(beat(group, member.id, epoch, topic_partitions=[]))
    script.send(beat(group, member.id, epoch, topic_partitions=owned({topic: [0]})))
    script.send(beat(group, member.id, epoch, topic_partitions=owned({topic: [5]})))


@exchanges.one
def the_epoch_before_when_an_answer_was_lost(script: Script) -> None:
    group, topic, other = eager_group(script), known_topic(script), known_topic(script, "other")
    member = joined(script, group, "member", topic)
    script.ask(beat(group, member.id, member.epoch, subscribed_topic_names=[topic.name, other.name]))
    script.send(beat(group, member.id, member.epoch))
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({topic: [0]})))
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({topic: [0], other: [0]})))
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({topic: [3]})))
    script.send(beat(group, member.id, member.epoch - 1, topic_partitions=owned({topic: [0]})))


@exchanges.versions((0, 1))
def an_unknown_member(script: Script, version: int) -> None:
    group, topic = script.group(), known_topic(script)
    script.send(beat(group, "nobody", 1), version)
    script.send(beat(group, "nobody", -1), version)
    script.send(beat(group, "nobody", -2, instance_id="instance"), version)
    joined(script, group, "member", topic)
    script.send(beat(group, "nobody", 1), version)
    script.send(beat(group, "nobody", -1), version)
    script.send(beat(group, "nobody", -2, instance_id="instance"), version)


@exchanges.versions((0, 1))
def a_member_leaves(script: Script, version: int) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, -1), version)
    script.send(beat(group, member.id, -1), version)
    script.send(beat(group, member.id, member.epoch), version)
    script.send(describe_consumer_groups(group), version)
    script.send(enter(group, member.id, topic.name), version)


@exchanges.one
def a_member_without_an_instance_cannot_leave_for_a_while(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, -2))
    script.send(beat(group, member.id, -2, instance_id="instance"))
    script.send(beat(group, member.id, member.epoch))


@exchanges.one
def a_subscription_changes(script: Script) -> None:
    group, topic, other = eager_group(script), known_topic(script, partitions=2), known_topic(script, "other")
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, member.epoch, subscribed_topic_names=[topic.name, other.name]))
    script.send(
        beat(group, member.id, member.epoch + 1, subscribed_topic_names=[other.name],
             topic_partitions=owned({topic: [0, 1], other: [0]}))
    )  # fmt: skip
    script.send(beat(group, member.id, member.epoch + 1))
    script.send(beat(group, member.id, member.epoch + 1, topic_partitions=owned({other: [0]})))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_member_subscribes_to_nothing(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, member.epoch, subscribed_topic_names=[]))
    script.send(beat(group, member.id, member.epoch, topic_partitions=[]))
    script.send(describe_consumer_groups(group))


@exchanges.one
def what_changes_no_epoch(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    for changed in ({"rack_id": "rack"}, {"server_assignor": "range"}, {"rebalance_timeout_ms": 9_000}):
        options: dict[str, Any] = changed
        script.send(beat(group, member.id, member.epoch, **options))
    script.send(beat(group, member.id, member.epoch), client_id="another client")
    script.send(describe_consumer_groups(group))


@exchanges.cases({name: REFUSED[name] for name in REFUSED if "assignor" in name or "empty" in name})
def a_later_beat_with(script: Script, options: Mapping[str, Any]) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, member.epoch, **options))


@exchanges.one
def partitions_that_nobody_has(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({UNKNOWN: [0], topic: [0, 9]})))


@exchanges.one
def a_topic_grows(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=1)
    member = joined(script, group, "member", topic)
    script.ask(create_partitions((topic.name, 3, None)))
    script.ask_until(
        beat(group, member.id, 0, rebalance_timeout_ms=30_000, topic_partitions=[],
             subscribed_topic_names=[topic.name]),
        until=lambda answer: answer.member_epoch > member.epoch,
    )  # fmt: skip
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_topic_is_made_later(script: Script) -> None:
    group = eager_group(script)
    member = script.name("member")
    first = script.send(enter(group, member, script.name("topic")))
    topic = known_topic(script)
    script.ask_until(enter(group, member, topic.name), until=lambda answer: answer.member_epoch > first.member_epoch)
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_topic_is_deleted(script: Script) -> None:
    group, topic, other = eager_group(script), known_topic(script), known_topic(script, "other")
    member = script.name("member")
    first = script.ask(enter(group, member, topic.name, other.name))
    script.ask(delete_topics(other.name))
    script.ask_until(
        enter(group, member, topic.name, other.name), until=lambda answer: answer.member_epoch > first.member_epoch
    )
    script.send(enter(group, member, topic.name, other.name))
    script.send(describe_consumer_groups(group))


@exchanges.one
def requests_of_the_old_protocol_by_a_member_of_the_new(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.send(heartbeat(group, member.epoch, member.id))
    script.send(sync(group, member.epoch, member.id))
    script.send(describe_groups(group))
    script.send(leave(group, ("nobody", None)))
    script.send(leave(group, (member.id, None)))
    script.send(beat(group, member.id, member.epoch))


@exchanges.versions((0, 1))
def groups_that_are_described(script: Script, version: int) -> None:
    group, topic, classic = script.group(), known_topic(script), script.group("classic")
    joined(script, group, "member", topic, rack_id="rack", instance_id="instance", server_assignor="range")
    script.ask(commit(classic, topic))
    script.send(describe_consumer_groups(group, classic, script.group("nobody"), ""), version)
    script.send(describe_consumer_groups(group, operations=True), version)
    script.send(describe_consumer_groups(), version)
    script.send(describe_consumer_groups(group, group), version)
