"""OffsetCommit: by nobody in particular, by members, and every way in which an offset is not taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ottla.wire.messages.offset_commit import OffsetCommitRequest
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import commit, delete_groups, describe_groups, fetch_offsets, join, leave
from tests.conformance.members import Member, stable_group, without_a_group_of_no_name
from tests.conformance.requests import UNKNOWN, creatable, create_topics, delete_topics
from tests.conformance.script import Script, Topic

exchanges = Exchanges("offset_commit")

VERSIONS = range(2, 11)


@exchanges.versions(VERSIONS)
def by_nobody_in_particular(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, metadata="a note"), version)
    script.send(fetch_offsets(group, {topic: [0]}))
    script.send(describe_groups(group))


@exchanges.versions(VERSIONS)
def by_a_member(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    script.send(commit(group, topic, generation=member.generation, member_id=member.id), version)
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.versions((7, 8, 10))
def by_a_static_member(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a", instances=["instance"])
    script.send(commit(group, topic, generation=member.generation, member_id=member.id, instance="instance"), version)


@exchanges.versions((2, 6, 9))
def an_unknown_topic(script: Script, version: int) -> None:
    script.send(commit(script.group(), UNKNOWN), version)


@exchanges.cases({"unknown": UNKNOWN.id, "zero": ZERO_UUID})
def a_topic_id_that_is(script: Script, topic_id: bytes) -> None:
    script.send(commit(script.group(), Topic("", topic_id)), 10)


@exchanges.versions((2, 9, 10))
def partitions_that_are_not_there(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic(partitions=2)
    script.send(commit(group, topic, (0, 1), (2, 1), (-1, 1), (1, 7)), version)
    script.send(fetch_offsets(group, None))


@exchanges.versions((9, 10))
def known_and_unknown_topics(script: Script, version: int) -> None:
    group, topic, other = script.group(), script.topic(), script.topic("other")
    request = commit(group, topic)
    request.topics.extend([*commit(group, UNKNOWN).topics, *commit(group, other, (0, 9)).topics])
    script.send(request, version)
    script.send(fetch_offsets(group, {topic: [0], other: [0]}))


@exchanges.cases({"empty": "", "../x": "../x", "a b": "a b", "250 long": "x" * 250})
def a_topic_name_that_is(script: Script, name: str) -> None:
    script.send(commit(script.group(), Topic(name, ZERO_UUID)), 9)


@exchanges.cases({"0": 0, "-1": -1, "-5": -5, "the highest": 2**63 - 1, "the least": -(2**63)})
def an_offset_of(script: Script, offset: int) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, (0, offset)))
    script.send(fetch_offsets(group, {topic: [0]}))


NOTES: dict[str, str | None] = {
    "null": None,
    "empty": "",
    "4096 bytes": "x" * 4096,
    "4097 bytes": "x" * 4097,
    "4096 letters of two bytes": "\u00e9" * 4096,
    "2049 letters of two bytes": "\u00e9" * 2049,
}


@exchanges.cases(NOTES)
def metadata_that_is(script: Script, metadata: str | None) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, metadata=metadata))
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def too_much_metadata_for_one_of_two(script: Script) -> None:
    group, topic = script.group(), script.topic(partitions=2)
    request = commit(group, topic, (0, 1), (1, 2))
    request.topics[0].partitions[1].committed_metadata = "x" * 5000
    script.send(request)
    script.send(fetch_offsets(group, {topic: [0, 1]}))


@exchanges.cases({"0": 0, "7": 7, "-2": -2})
def a_leader_epoch_of(script: Script, epoch: int) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, leader_epoch=epoch))
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.cases({"1 ms": 1, "0 ms": 0, "a day": 86_400_000})
def a_retention_of(script: Script, retention_ms: int) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, retention_ms=retention_ms), 2)
    script.send(commit(group, topic, retention_ms=retention_ms), 4)


@exchanges.one
def again_and_back(script: Script) -> None:
    group, topic = script.group(), script.topic()
    for offset in (5, 5, 9, 3):
        script.send(commit(group, topic, (0, offset)))
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def the_same_partition_twice(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, (0, 5), (0, 6)))
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.versions((2, 9, 10))
def no_topics(script: Script, version: int) -> None:
    group = script.group()
    script.send(OffsetCommitRequest(group_id=group, member_id="", topics=[]), version)
    script.send(describe_groups(group))


@exchanges.one
def no_partitions(script: Script) -> None:
    group, topic = script.group(), script.topic()
    request = commit(group, topic)
    request.topics[0].partitions.clear()
    script.send(request)


@exchanges.versions((2, 10))
def a_group_of_no_name(script: Script, version: int) -> None:
    topic = script.topic()
    without_a_group_of_no_name(script)
    script.send(commit("", topic), version)
    script.send(commit("", topic, generation=1, member_id="nobody"), version)


Asked: TypeAlias = Callable[[str, Topic, Member], OffsetCommitRequest]


def as_member(**changed: Any) -> Asked:
    def ask(group: str, topic: Topic, member: Member) -> OffsetCommitRequest:
        identity: dict[str, Any] = {"generation": member.generation, "member_id": member.id} | changed
        return commit(group, topic, **identity)

    return ask


IDENTITIES: dict[str, Asked] = {
    "a later generation": as_member(generation=9),
    "generation 0": as_member(generation=0),
    "generation -1": as_member(generation=-1),
    "generation -2": as_member(generation=-2),
    "an unknown member": as_member(member_id="nobody"),
    "no member": as_member(member_id=""),
    "neither a member nor a generation": as_member(member_id="", generation=-1),
    "an unknown member and generation -1": as_member(member_id="nobody", generation=-1),
}


@exchanges.cases(IDENTITIES)
def into_a_stable_group_by(script: Script, asked: Asked) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    for version in (2, 7, 9, 10):
        script.send(asked(group, topic, member), version)


@exchanges.cases(IDENTITIES)
def into_a_group_that_is_empty_again_by(script: Script, asked: Asked) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    script.ask(leave(group, (member.id, None)))
    for version in (2, 8, 10):
        script.send(asked(group, topic, member), version)


@exchanges.cases({name: asked for name, asked in IDENTITIES.items() if "-1" not in name and "neither" not in name})
def into_an_unknown_group_by(script: Script, asked: Asked) -> None:
    group, topic = script.group(), script.topic()
    for version in (2, 8, 9, 10):
        script.send(asked(group, topic, Member("a", "somebody", 1)), version)
    script.send(describe_groups(group))


@exchanges.one
def into_an_unknown_group_by_an_instance(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.send(commit(group, topic, instance="instance"), 7)
    script.send(commit(group, topic, instance="instance"), 10)


@exchanges.one
def with_an_id_that_was_given(script: Script) -> None:
    group, topic = script.group(), script.topic()
    member_id = script.ask(join(group), 9, on="a").member_id
    script.send(commit(group, topic, member_id=member_id, generation=1))
    script.send(commit(group, topic, member_id=member_id, generation=0))


@exchanges.one
def after_the_group_was_deleted(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.ask(delete_groups(group))
    script.send(fetch_offsets(group, {topic: [0]}))
    script.send(commit(group, topic, (0, 8)))
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.one
def for_a_topic_that_is_deleted_then(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.ask(delete_topics(topic.name))
    script.ask_until(commit(group, topic), 9, until=lambda answer: answer.topics[0].partitions[0].error_code == 3)
    script.send(commit(group, topic), 10)
    script.settle(fetch_offsets(group, None, version=9), 9, until=lambda answer: not answer.groups[0].topics)


@exchanges.one
def for_a_topic_that_is_made_anew(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.ask(delete_topics(topic.name))
    script.ask_until(create_topics(creatable(topic.name)), until=lambda answer: answer.topics[0].error_code == 0)
    again = script.await_topic()
    script.settle(
        fetch_offsets(group, {again: [0]}, version=9),
        9,
        until=lambda answer: answer.groups[0].topics[0].partitions[0].committed_offset == -1,
    )
    script.send(commit(group, again, (0, 2)))
    script.send(fetch_offsets(group, {again: [0]}))
