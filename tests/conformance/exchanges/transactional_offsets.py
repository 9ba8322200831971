"""AddOffsetsToTxn and TxnOffsetCommit: offsets that are committed with a transaction or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from tests.conformance.exchange import Exchanges
from tests.conformance.group_requests import (
    commit,
    delete_groups,
    delete_offsets,
    describe_groups,
    enter,
    fetch_offsets,
    leave,
    list_groups,
    subscription,
)
from tests.conformance.members import Member, stable_group
from tests.conformance.requests import UNKNOWN
from tests.conformance.script import Script, Topic
from tests.conformance.transaction_requests import (
    ABORT,
    OTHERS,
    RESULTS,
    Changed,
    Producer,
    add_offsets,
    commit_offsets,
    describe_transactions,
    end,
    ended,
    ready_producer,
    second_epoch,
)

exchanges = Exchanges("transactional_offsets")

FIRST_VERSION_WITH_MEMBERS = 3


@exchanges.versions(range(5))
def a_group_is_added(script: Script, version: int) -> None:
    producer, group = ready_producer(script), script.group()
    script.send(add_offsets(producer, group), version)
    script.send(add_offsets(producer, group), version)
    script.send(describe_transactions(producer.transactional_id))


@exchanges.cases(OTHERS)
def a_group_is_added_by(script: Script, changed: Changed) -> None:
    producer, group = second_epoch(script), script.group()
    for version in range(5):
        script.send(add_offsets(changed(producer), group), version)


@exchanges.one
def a_group_of_no_name_is_added(script: Script) -> None:
    producer = ready_producer(script)
    script.group()
    script.send(add_offsets(producer, ""))


@exchanges.versions(range(6))
def offsets_of_a_group_that_was_not_added(script: Script, version: int) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.send(commit_offsets(producer, group, topic), version)
    script.send(describe_transactions(producer.transactional_id))
    script.send(fetch_offsets(group, {topic: [0]}))


@exchanges.cases({f"{name}, version {version}": (result, version) for version in range(6)
                  for name, result in RESULTS.items()})  # fmt: skip
def offsets_of_a_group_that_was_added(script: Script, case: tuple[bool, int]) -> None:
    committed, version = case
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(add_offsets(producer, group))
    script.send(commit_offsets(producer, group, topic, metadata="a note"), version)
    ended(script, producer, committed)
    script.settle(fetch_offsets(group, {topic: [0]}, stable=True), until=is_stable)


def is_stable(answer: Any) -> bool:
    return all(partition.error_code == 0 for topic in answer.groups[0].topics for partition in topic.partitions)


@exchanges.versions((7, 8, 9, 10))
def pending_offsets_are_fetched(script: Script, version: int) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic(partitions=2)
    script.ask(commit(group, topic, (0, 3), (1, 4)))
    script.ask(commit_offsets(producer, group, topic, (0, 9)))
    for stable in (False, True):
        script.send(fetch_offsets(group, {topic: [0, 1]}, version=version, stable=stable), version)
        script.send(fetch_offsets(group, None, version=version, stable=stable), version)


@exchanges.versions((7, 10))
def pending_offsets_where_none_was_before(script: Script, version: int) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(commit_offsets(producer, group, topic, (0, 9)))
    for stable in (False, True):
        script.send(fetch_offsets(group, {topic: [0]}, version=version, stable=stable), version)
        script.send(fetch_offsets(group, None, version=version, stable=stable), version)
    script.send(describe_groups(group))
    script.send(list_groups(), only_own=True)


@exchanges.one
def a_plain_commit_beside_a_pending_one(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(commit_offsets(producer, group, topic, (0, 9)))
    script.send(commit(group, topic, (0, 4)))
    script.send(fetch_offsets(group, {topic: [0]}))
    script.send(fetch_offsets(group, {topic: [0]}, stable=True))
    ended(script, producer)
    script.settle(fetch_offsets(group, {topic: [0]}, stable=True), until=is_stable)


@exchanges.one
def a_plain_commit_behind_a_pending_one_that_is_aborted(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(commit_offsets(producer, group, topic, (0, 9)))
    script.ask(commit(group, topic, (0, 4)))
    ended(script, producer, ABORT)
    script.settle(fetch_offsets(group, {topic: [0]}, stable=True), until=is_stable)


@exchanges.one
def pending_offsets_of_two_transactions(script: Script) -> None:
    one, two = ready_producer(script, "one"), ready_producer(script, "two")
    group, topic = script.group(), script.topic()
    script.send(commit_offsets(one, group, topic, (0, 5)))
    script.send(commit_offsets(two, group, topic, (0, 6)))
    ended(script, one)
    script.settle(
        fetch_offsets(group, {topic: [0]}),
        until=lambda answer: answer.groups[0].topics[0].partitions[0].committed_offset == 5,
    )
    script.send(fetch_offsets(group, {topic: [0]}, stable=True))
    ended(script, two)
    script.settle(fetch_offsets(group, {topic: [0]}, stable=True), until=is_stable)


@exchanges.one
def a_group_with_pending_offsets_is_deleted(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(commit_offsets(producer, group, topic, (0, 9)))
    script.send(delete_offsets(group, {topic.name: [0]}))
    script.send(fetch_offsets(group, {topic: [0]}, stable=True))
    script.send(delete_groups(group))
    script.send(fetch_offsets(group, {topic: [0]}, stable=True))


@exchanges.cases(OTHERS)
def offsets_are_committed_by(script: Script, changed: Changed) -> None:
    producer, group, topic = second_epoch(script), script.group(), script.topic()
    for version in (0, 3, 4, 5):
        script.send(commit_offsets(changed(producer), group, topic), version)


@exchanges.cases(OTHERS)
def offsets_are_committed_in_an_open_transaction_by(script: Script, changed: Changed) -> None:
    producer, group, topic = second_epoch(script), script.group(), script.topic()
    script.ask(commit_offsets(producer, group, topic))
    for version in (0, 3, 4, 5):
        script.send(commit_offsets(changed(producer), group, topic), version)


@exchanges.versions((0, 3, 5))
def offsets_of_partitions_that_are_not_there(script: Script, version: int) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(add_offsets(producer, group))
    script.send(commit_offsets(producer, group, topic, (0, 1), (1, 1), (-1, 1)), version)
    script.send(commit_offsets(producer, group, UNKNOWN), version)


@exchanges.one
def too_much_metadata(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.send(commit_offsets(producer, group, topic, metadata="x" * 4097))
    script.send(commit_offsets(producer, group, topic, metadata=None))


@exchanges.versions((3, 5))
def no_offsets(script: Script, version: int) -> None:
    producer, group = ready_producer(script), script.group()
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[],
    )
    script.send(request, version)
    script.send(describe_transactions(producer.transactional_id))


@exchanges.one
def offsets_of_a_group_of_no_name(script: Script) -> None:
    producer, topic = ready_producer(script), script.topic()
    script.group()
    for version in (0, 3, 5):
        script.send(commit_offsets(producer, "", topic), version)


@exchanges.versions((0, 2, 3, 5))
def by_a_member(script: Script, version: int) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    identity: dict[str, Any] = {"generation": member.generation, "member_id": member.id}
    script.ask(add_offsets(producer, group))
    if version < FIRST_VERSION_WITH_MEMBERS:
        identity = {}
    script.send(commit_offsets(producer, group, topic, **identity), version)


Asked: TypeAlias = Callable[[Producer, str, Topic, Member], TxnOffsetCommitRequest]


def as_member(**changed: Any) -> Asked:
    def ask(producer: Producer, group: str, topic: Topic, member: Member) -> TxnOffsetCommitRequest:
        identity: dict[str, Any] = {"generation": member.generation, "member_id": member.id} | changed
        return commit_offsets(producer, group, topic, **identity)

    return ask


IDENTITIES: dict[str, Asked] = {
    "a later generation": as_member(generation=9),
    "generation 0": as_member(generation=0),
    "generation -1": as_member(generation=-1),
    "an unknown member": as_member(member_id="nobody"),
    "no member": as_member(member_id=""),
    "neither a member nor a generation": as_member(member_id="", generation=-1),
    "an unknown instance": as_member(instance="nobody"),
}


@exchanges.cases(IDENTITIES)
def into_a_stable_group_by(script: Script, asked: Asked) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    script.ask(add_offsets(producer, group))
    for version in (3, 4, 5):
        script.send(asked(producer, group, topic, member), version)


@exchanges.cases(IDENTITIES)
def into_a_group_without_members_by(script: Script, asked: Asked) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    [member] = stable_group(script, group, "a")
    script.ask(leave(group, (member.id, None)))
    script.ask(add_offsets(producer, group))
    script.send(asked(producer, group, topic, member), 5)


@exchanges.cases(IDENTITIES)
def into_an_unknown_group_by(script: Script, asked: Asked) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(add_offsets(producer, group))
    for version in (3, 5):
        script.send(asked(producer, group, topic, Member("a", "somebody", 1)), version)


@exchanges.one
def into_a_group_of_the_new_protocol(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    member = script.name("member")
    epoch = script.ask(enter(group, member, topic.name)).member_epoch
    for generation in (epoch, epoch + 1, epoch - 1, -1):
        script.send(commit_offsets(producer, group, topic, generation=generation, member_id=member))
    script.send(commit_offsets(producer, group, topic, generation=epoch, member_id="nobody"))
    script.send(commit_offsets(producer, group, topic))


@exchanges.one
def after_the_end(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    script.ask(add_offsets(producer, group))
    script.ask(commit_offsets(producer, group, topic), 3)
    ended(script, producer, version=4)
    for version in (0, 3, 4):
        script.send(commit_offsets(producer, group, topic, (0, 7)), version)
    script.send(end(producer), 4)
    script.send(fetch_offsets(group, {topic: [0]}, stable=True))


@exchanges.one
def a_subscribed_topic_keeps_its_pending_offset(script: Script) -> None:
    producer, group, topic = ready_producer(script), script.group(), script.topic()
    [member] = stable_group(script, group, "a", protocols={"range": subscription(topic.name)})
    script.ask(commit_offsets(producer, group, topic, generation=member.generation, member_id=member.id))
    script.send(delete_offsets(group, {topic.name: [0]}))
    ended(script, producer)
    script.settle(fetch_offsets(group, {topic: [0]}, stable=True), until=is_stable)
