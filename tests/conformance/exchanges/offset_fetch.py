"""OffsetFetch and OffsetDelete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.wire.messages.offset_delete import OffsetDeleteRequest
from ottla.wire.messages.offset_fetch import OffsetFetchRequest
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    commit,
    delete_offsets,
    describe_groups,
    fetch_offsets,
    fetch_offsets_of,
    leave,
    offsets_of_group,
    subscription,
)
from tests.conformance.members import stable_group, without_a_group_of_no_name
from tests.conformance.requests import UNKNOWN
from tests.conformance.script import Script, Topic

exchanges = Exchanges("offset_fetch")

VERSIONS = range(1, 11)


@exchanges.versions(VERSIONS)
def what_was_committed(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic(partitions=3)
    script.ask(commit(group, topic, (0, 5), (2, 7), metadata="a note", leader_epoch=0))
    script.send(fetch_offsets(group, {topic: [0, 1, 2, 9]}, version=version), version)


@exchanges.versions(VERSIONS)
def of_a_group_that_is_not_there(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    script.send(fetch_offsets(group, {topic: [0, 1]}, version=version), version)


@exchanges.versions((2, 5, 7, 8, 9, 10))
def everything(script: Script, version: int) -> None:
    group, topic, other = script.group(), script.topic(partitions=2), script.topic("other")
    script.send(fetch_offsets(group, None, version=version), version)
    script.ask(commit(group, topic, (0, 5), (1, 6)))
    script.ask(commit(group, other, (0, 7)))
    script.send(fetch_offsets(group, None, version=version), version)


@exchanges.versions((1, 5, 7, 8, 10))
def nothing(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(fetch_offsets(group, {}, version=version), version)
    script.send(fetch_offsets(group, {topic: []}, version=version), version)


@exchanges.versions((1, 7, 8, 9))
def of_an_unknown_topic(script: Script, version: int) -> None:
    group = script.group()
    script.send(fetch_offsets(group, {UNKNOWN: [0, 1]}, version=version), version)
    script.send(fetch_offsets(group, {Topic("", ZERO_UUID): [0]}, version=version), version)


@exchanges.cases({"unknown": UNKNOWN.id, "zero": ZERO_UUID})
def of_a_topic_id_that_is(script: Script, topic_id: bytes) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(fetch_offsets(group, {Topic("", topic_id): [0, 1], topic: [0]}), 10)


@exchanges.versions((1, 2, 5, 7, 8, 10))
def of_a_group_of_no_name(script: Script, version: int) -> None:
    topic = script.topic()
    script.group()
    script.send(fetch_offsets("", {topic: [3]}, version=version), version)


@exchanges.versions((8, 9, 10))
def of_several_groups(script: Script, version: int) -> None:
    one, two, three, topic = script.group("one"), script.group("two"), script.group("three"), script.topic()
    script.ask(commit(one, topic, (0, 1)))
    script.ask(commit(two, topic, (0, 2)))
    script.send(
        fetch_offsets_of(
            offsets_of_group(one, {topic: [0]}), offsets_of_group(three, {topic: [0]}), offsets_of_group(two, None)
        ),
        version,
    )


@exchanges.versions((8, 10))
def of_no_groups(script: Script, version: int) -> None:
    script.group()
    script.send(OffsetFetchRequest(groups=[]), version)


@exchanges.one
def of_the_same_group_twice(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(fetch_offsets_of(offsets_of_group(group, {topic: [0]}), offsets_of_group(group, {topic: [0]})))


@exchanges.one
def the_same_partition_twice(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(fetch_offsets(group, {topic: [0, 0]}))


@exchanges.versions((7, 8, 10))
def only_what_is_stable(script: Script, version: int) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(fetch_offsets(group, {topic: [0, 1]}, version=version, stable=True), version)


MEMBERS: dict[str, tuple[str | None, int]] = {
    "an unknown one": ("nobody", 1),
    "an unknown one without an epoch": ("nobody", -1),
    "nobody with an epoch": (None, 1),
    "nobody": (None, -1),
    "an empty id": ("", -1),
    "an empty id with an epoch": ("", 0),
}


@exchanges.cases(MEMBERS)
def of_a_classic_group_by(script: Script, member: tuple[str | None, int]) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    member_id, epoch = member
    for version in (9, 10):
        script.send(fetch_offsets(group, {topic: [0]}, member_id=member_id, epoch=epoch), version)
    stable_group(script, group, "a")
    script.send(fetch_offsets(group, {topic: [0]}, member_id=member_id, epoch=epoch))


@exchanges.one
def of_a_classic_group_by_its_member(script: Script) -> None:
    group, topic = script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    for epoch in (member.generation, member.generation + 1, -1):
        script.send(fetch_offsets(group, {topic: [0]}, member_id=member.id, epoch=epoch))


@exchanges.one
def by_name_what_was_committed_by_id(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic), 10)
    for version in (1, 7, 9):
        script.send(fetch_offsets(group, {topic: [0]}, version=version), version)


@exchanges.one
def deleted_offsets(script: Script) -> None:
    group, topic, other = script.group(), script.topic(partitions=2), script.topic("other")
    script.ask(commit(group, topic, (0, 5), (1, 6)))
    script.ask(commit(group, other))
    script.send(delete_offsets(group, {topic.name: [0, 7], other.name: [0]}))
    script.send(fetch_offsets(group, None))
    script.send(delete_offsets(group, {topic.name: [0, 1]}))
    script.send(describe_groups(group))


DELETED: dict[str, Mapping[str, Sequence[int]]] = {
    "an unknown topic": {"nobody-made-this": [0, 1]},
    "an empty topic": {"": [0]},
    "no partitions": {"nobody-made-this": []},
}


@exchanges.cases(DELETED)
def deleting_offsets_of(script: Script, topics: Mapping[str, Sequence[int]]) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(delete_offsets(group, topics))


@exchanges.one
def deleting_no_offsets(script: Script) -> None:
    group, topic = script.group(), script.topic()
    script.ask(commit(group, topic))
    script.send(OffsetDeleteRequest(group_id=group, topics=[]))


@exchanges.one
def deleting_offsets_of_a_group_that_is_not_there(script: Script) -> None:
    topic = script.topic()
    script.send(delete_offsets(script.group(), {topic.name: [0]}))
    without_a_group_of_no_name(script)
    script.send(delete_offsets("", {topic.name: [0]}))
    script.ask(commit("", topic))
    script.send(delete_offsets("", {topic.name: [0]}))


@exchanges.one
def deleting_offsets_of_topics_that_are_read(script: Script) -> None:
    group, topic, other = script.group(), script.topic(), script.topic("other")
    [member] = stable_group(script, group, "a", protocols={"range": subscription(topic.name)})
    for one in (topic, other):
        script.ask(commit(group, one, generation=member.generation, member_id=member.id))
    script.send(delete_offsets(group, {topic.name: [0, 5], other.name: [0], "nobody-made-this": [0]}))
    script.send(fetch_offsets(group, None))
    script.ask(leave(group, (member.id, None)))
    script.send(delete_offsets(group, {topic.name: [0]}))


@exchanges.one
def deleting_offsets_of_a_group_that_is_no_consumers_group(script: Script) -> None:
    group, topic = script.group(), script.topic()
    stable_group(script, group, "a", protocol_type="connect", protocols={"range": b"whatever"})
    script.send(delete_offsets(group, {topic.name: [0]}))


@exchanges.one
def deleting_offsets_where_a_subscription_is_unreadable(script: Script) -> None:
    group, topic = script.group(), script.topic()
    stable_group(script, group, "a", protocols={"range": b"?"})
    script.send(delete_offsets(group, {topic.name: [0]}))
