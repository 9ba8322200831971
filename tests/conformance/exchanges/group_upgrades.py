"""A group goes from the classic protocol to the new one, and back."""

from __future__ import annotations

from typing import Any

from ottla.wire.messages.join_group import JoinGroupRequest
from tests.conformance.consumers import eager_group, joined, known_topic
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    assignment,
    beat,
    commit,
    describe_consumer_groups,
    describe_groups,
    enter,
    fetch_offsets,
    heartbeat,
    join,
    leave,
    list_groups,
    owned,
    subscription,
    sync,
)
from tests.conformance.members import Member, await_state, stable_group
from tests.conformance.script import Script, Topic

exchanges = Exchanges("group_upgrades")


def classic_group(
    script: Script, group: str, topic: Topic, partitions: list[int], user_data: bytes | None = None
) -> Member:
    """One member that has all partitions."""
    protocols = {"range": subscription(topic.name, user_data=b"theirs")}
    member_id = script.ask(join(group, protocols=protocols), 9, on="classic").member_id
    answer = script.ask(join(group, member_id, protocols=protocols), 9, on="classic")
    shares = {member_id: assignment({topic.name: partitions}, user_data=user_data)}
    script.ask(sync(group, answer.generation_id, member_id, shares), on="classic")
    return Member("classic", member_id, answer.generation_id)


def again(group: str, member: Member, topic: Topic, partitions: list[int]) -> JoinGroupRequest:
    """A classic member joins with what it still has."""
    return join(group, member.id, protocols={"range": subscription(topic.name, owned={topic.name: partitions})})


@exchanges.one
def an_empty_classic_group_becomes_a_new_one(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    script.ask(commit(group, topic))
    script.send(enter(group, script.name("member"), topic.name))
    script.send(list_groups(), only_own=True)
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def an_empty_new_group_becomes_a_classic_one(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    member = joined(script, group, "member", topic)
    script.ask(commit(group, topic, generation=member.epoch, member_id=member.id))
    script.ask(beat(group, member.id, -1))
    given = script.send(join(group), 9, on="a")
    script.send(join(group, given.member_id), 9, on="a")
    script.send(list_groups(), only_own=True)
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def a_member_of_the_new_protocol_joins_a_classic_group(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=4)
    classic = classic_group(script, group, topic, [0, 1, 2, 3])
    script.send(enter(group, script.name("member"), topic.name))
    script.send(describe_consumer_groups(group))
    script.send(describe_groups(group))
    script.send(list_groups(), only_own=True)
    script.send(heartbeat(group, classic.generation, classic.id))
    script.send(commit(group, topic, generation=classic.generation, member_id=classic.id))
    script.send(commit(group, topic, generation=classic.generation + 1, member_id=classic.id))


@exchanges.one
def a_classic_member_gives_up_partitions_to_a_new_one(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=4)
    classic = classic_group(script, group, topic, [0, 1, 2, 3])
    member = script.name("member")
    epoch = script.ask(enter(group, member, topic.name)).member_epoch
    script.send(heartbeat(group, classic.generation, classic.id))
    first = script.send(again(group, classic, topic, [0, 1, 2, 3]), on="classic")
    script.send(heartbeat(group, first.generation_id, classic.id))
    script.send(sync(group, first.generation_id, classic.id), on="classic")
    script.send(heartbeat(group, first.generation_id, classic.id))
    second = script.send(again(group, classic, topic, [0, 1]), on="classic")
    script.send(sync(group, second.generation_id, classic.id), on="classic")
    script.send(heartbeat(group, second.generation_id, classic.id))
    script.send(beat(group, member, epoch))
    script.send(describe_consumer_groups(group))


@exchanges.one
def a_classic_member_joins_a_new_group(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    member = joined(script, group, "member", topic)
    protocols = {"range": subscription(topic.name)}
    given = script.send(join(group, protocols=protocols), 9, on="classic")
    answer = script.send(join(group, given.member_id, protocols=protocols), 9, on="classic")
    script.send(sync(group, answer.generation_id, given.member_id), on="classic")
    script.send(heartbeat(group, answer.generation_id, given.member_id))
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({topic: [0, 1]})))
    script.send(beat(group, member.id, member.epoch, topic_partitions=owned({topic: [0]})))
    script.send(heartbeat(group, answer.generation_id, given.member_id))
    answer = script.send(join(group, given.member_id, protocols=protocols), 9, on="classic")
    script.send(sync(group, answer.generation_id, given.member_id), on="classic")
    script.send(heartbeat(group, answer.generation_id, given.member_id))
    script.send(describe_consumer_groups(group))


@exchanges.versions((0, 3))
def an_old_classic_member_joins_a_new_group(script: Script, version: int) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    joined(script, group, "member", topic)
    script.send(join(group, protocols={"range": subscription(topic.name)}), version, on="classic")


@exchanges.one
def a_classic_member_with_a_made_up_id_joins_a_new_group(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    joined(script, group, "member", topic)
    script.send(join(group, "made-up", protocols={"range": subscription(topic.name)}), on="classic")


REFUSED: dict[str, dict[str, Any]] = {
    "another protocol type": {"protocol_type": "connect"},
    "no protocols": {"protocols": {}},
    "metadata that is none": {"protocols": {"range": b"?"}},
    "a session too short": {"session_ms": 1},
}


@exchanges.cases(REFUSED)
def a_classic_member_joins_a_new_group_with(script: Script, options: dict[str, Any]) -> None:
    group, topic = eager_group(script), known_topic(script)
    joined(script, group, "member", topic)
    request: dict[str, Any] = {"protocols": {"range": subscription(topic.name)}} | options
    for version in (3, 9):
        script.send(join(group, **request), version, on="classic")
    script.send(join(group, "made-up", **request), 9, on="classic")


@exchanges.one
def wrong_requests_of_a_classic_member_in_a_new_group(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    member = joined(script, group, "member", topic)
    script.ask(beat(group, member.id, -1))
    member = joined(script, group, "member", topic)
    protocols = {"range": subscription(topic.name)}
    classic = script.ask(join(group, "made-up", protocols=protocols), on="classic")
    generation = classic.generation_id
    script.send(heartbeat(group, generation + 1, "made-up"))
    script.send(heartbeat(group, generation - 1, "made-up"))
    script.send(heartbeat(group, generation, "nobody"))
    script.send(heartbeat(group, generation, member.id))
    script.send(sync(group, generation + 1, "made-up"))
    script.send(sync(group, generation, "nobody"))
    script.send(sync(group, generation, member.id))
    script.send(sync(group, generation, "made-up", protocol="sticky"))
    script.send(sync(group, generation, "made-up", protocol_type="connect"))
    script.send(heartbeat(group, generation, "made-up", instance="nobody"))
    script.send(commit(group, topic, generation=generation + 1, member_id="made-up"), 8)
    script.send(commit(group, topic, generation=generation, member_id="made-up"), 8)
    script.send(fetch_offsets(group, {topic: [0]}, member_id="made-up", epoch=generation + 1))


@exchanges.one
def the_last_new_member_leaves_and_a_classic_group_is_left(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    classic = classic_group(script, group, topic, [0, 1])
    member = joined(script, group, "member", topic)
    script.send(beat(group, member.id, -1))
    script.send(list_groups(), only_own=True)
    script.send(describe_groups(group))
    script.send(heartbeat(group, classic.generation, classic.id))
    script.send(again(group, classic, topic, [0, 1]), on="classic")


@exchanges.one
def a_classic_member_becomes_a_new_one(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    classic = classic_group(script, group, topic, [0, 1])
    script.send(enter(group, classic.id, topic.name))
    script.send(describe_consumer_groups(group))
    script.send(heartbeat(group, classic.generation, classic.id))


@exchanges.one
def a_classic_member_leaves_a_new_group(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    classic = classic_group(script, group, topic, [0, 1])
    member = joined(script, group, "member", topic)
    script.send(leave(group, (classic.id, None)))
    script.send(beat(group, member.id, member.epoch))
    script.send(describe_consumer_groups(group))


@exchanges.one
def joins_that_wait_when_the_group_is_upgraded(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    classic_group(script, group, topic, [0, 1])
    waiting = script.begin(join(group, protocols={"range": subscription(topic.name)}), 3, on="second")
    await_state(script, group, "PreparingRebalance", 2)
    script.send(enter(group, script.name("member"), topic.name))
    script.finish(waiting)


@exchanges.one
def a_classic_group_of_another_type(script: Script) -> None:
    group, topic = script.group(), known_topic(script)
    stable_group(script, group, "a", protocol_type="connect")
    script.send(enter(group, script.name("member"), topic.name))
    script.send(beat(group, script.name("member"), 1))
    script.send(beat(group, script.name("member"), -1))


@exchanges.cases({"the assignment": b"mine", "no assignment": None})
def a_classic_group_with_data_of_its_own_in(script: Script, user_data: bytes | None) -> None:
    group, topic = eager_group(script), known_topic(script)
    classic_group(script, group, topic, [0], user_data)
    script.send(enter(group, script.name("member"), topic.name))


@exchanges.one
def a_static_classic_member_is_replaced_by_a_new_one(script: Script) -> None:
    group, topic = eager_group(script), known_topic(script, partitions=2)
    protocols = {"range": subscription(topic.name)}
    answer = script.ask(join(group, instance="instance", protocols=protocols), on="classic")
    shares = {answer.member_id: assignment({topic.name: [0, 1]})}
    script.ask(sync(group, answer.generation_id, answer.member_id, shares, instance="instance"), on="classic")
    script.send(enter(group, script.name("member"), topic.name, instance_id="instance"))
    script.send(describe_consumer_groups(group))
    script.send(heartbeat(group, answer.generation_id, answer.member_id, instance="instance"))
