"""Groups that are full: who is turned away, and who has a place in them already."""

from __future__ import annotations

from typing import Any

from tests.conformance.consumers import Consumer, joined, known_topic
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    assignment,
    beat,
    describe_groups,
    enter,
    heartbeat,
    join,
    leave,
    subscription,
)
from tests.conformance.members import Member, await_state, rejoin, stable_group
from tests.conformance.script import Script, Topic
from tests.conformance.sizes import MOST_CLASSIC_MEMBERS, MOST_CONSUMERS

exchanges = Exchanges("group_sizes")

LETTERS = "abcdefghij"
ANOTHER = "z"


def full_group(script: Script, *instances: str | None, **options: Any) -> tuple[str, list[Member]]:
    group = script.group()
    return group, stable_group(script, group, *LETTERS[:MOST_CLASSIC_MEMBERS], instances=instances, **options)


@exchanges.versions((0, 3, 4, 9))
def a_classic_group_is_full(script: Script, version: int) -> None:
    group, members = full_group(script)
    script.send(join(group), version, on=ANOTHER)
    script.send(heartbeat(group, members[0].generation, members[0].id), on="a")


@exchanges.one
def another_static_member_comes_to_a_full_group(script: Script) -> None:
    group, _ = full_group(script)
    script.send(join(group, instance="instance"), on=ANOTHER)


@exchanges.one
def an_unknown_member_comes_to_a_full_group(script: Script) -> None:
    group, _ = full_group(script)
    script.send(join(group, "nobody"), on=ANOTHER)


@exchanges.one
def a_follower_joins_a_full_group_again(script: Script) -> None:
    group, members = full_group(script)
    script.send(rejoin(group, members[1]), on="b")


@exchanges.one
def a_static_member_comes_back_to_a_full_group(script: Script) -> None:
    group, _ = full_group(script, None, "instance")
    script.send(join(group, instance="instance"), on=ANOTHER)


@exchanges.one
def a_place_becomes_free(script: Script) -> None:
    group, members = full_group(script)
    script.send(join(group), on=ANOTHER)
    script.send(leave(group, (members[1].id, None)), on="b")
    script.send(join(group), on=ANOTHER)


@exchanges.one
def the_last_to_join_is_left_out(script: Script) -> None:
    """While a group rebalances, those have a place who join first. Kafka waits for the last one until time is over."""
    timeout: dict[str, Any] = {"rebalance_ms": 3_000}
    group, members = full_group(script, **timeout)
    *early, late = members
    pending = [script.begin(rejoin(group, early[0], **timeout), on=early[0].connection)]
    await_state(script, group, "PreparingRebalance")
    given = script.send(join(group, **timeout), on=ANOTHER)
    pending.append(script.begin(join(group, given.member_id, **timeout), on=ANOTHER))
    await_state(script, group, "PreparingRebalance", len(members) + 1)
    pending += [script.begin(rejoin(group, member, **timeout), on=member.connection) for member in early[1:]]
    script.still_waits(pending[-1])
    script.send(rejoin(group, late, **timeout), on=late.connection)
    for one in pending:
        script.finish(one)
    script.send(heartbeat(group, late.generation, late.id), on=late.connection)


def full_consumer_group(script: Script) -> tuple[str, Topic, list[Consumer]]:
    group, topic = script.group(), known_topic(script)
    labels = LETTERS[:MOST_CONSUMERS]
    return group, topic, [joined(script, group, label, topic, instance_id=f"instance {label}") for label in labels]


@exchanges.versions((0, 1))
def a_consumer_group_is_full(script: Script, version: int) -> None:
    group, topic, _ = full_consumer_group(script)
    script.send(enter(group, script.name(ANOTHER), topic.name), version)


@exchanges.cases({"a heartbeat": 3, "a leave": -1})
def an_unknown_consumer_comes_to_a_full_group(script: Script, epoch: int) -> None:
    group, _, _ = full_consumer_group(script)
    script.send(beat(group, script.name(ANOTHER), epoch))


@exchanges.one
def a_consumer_joins_a_full_group_again(script: Script) -> None:
    group, topic, members = full_consumer_group(script)
    script.send(enter(group, members[0].id, topic.name))


@exchanges.one
def a_static_consumer_comes_back_to_a_full_group(script: Script) -> None:
    group, topic, members = full_consumer_group(script)
    script.send(beat(group, members[0].id, -2, instance_id="instance a"))
    script.send(enter(group, script.name(ANOTHER), topic.name, instance_id="instance a"))
    script.send(enter(group, members[0].id, topic.name, instance_id="instance a"))


@exchanges.one
def a_consumer_leaves_a_full_group(script: Script) -> None:
    group, topic, members = full_consumer_group(script)
    script.send(beat(group, members[1].id, -1))
    script.send(enter(group, script.name(ANOTHER), topic.name))


@exchanges.versions((3, 9))
def a_classic_member_comes_to_a_full_consumer_group(script: Script, version: int) -> None:
    group, topic, _ = full_consumer_group(script)
    script.send(join(group, protocols={"range": subscription(topic.name)}), version, on=ANOTHER)


@exchanges.cases({"as large as may be": MOST_CONSUMERS, "larger": MOST_CONSUMERS + 1})
def a_consumer_comes_to_a_classic_group(script: Script, size: int) -> None:
    group, topic = script.group(), known_topic(script)
    protocols = {"range": subscription(topic.name)}
    members = stable_group(script, group, *LETTERS[:size], protocols=protocols, shared=assignment({}))
    script.send(enter(group, script.name(ANOTHER), topic.name))
    script.send(heartbeat(group, members[0].generation, members[0].id), on="a")
    script.send(describe_groups(group), 5)
