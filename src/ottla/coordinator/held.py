"""Partitions that a group may not read yet, because its topic has grown in order (`records/growth`).

A fetch does not tell for which group it reads, but who is a member reads what the group assigned to it. So a partition
is held back from the assignment of a group until the group has committed its parent up to the fence, and then the group
is assigned anew. No client has to know of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from ottla.coordinator.offsets.offsets import Committed, PartitionKey
from ottla.coordinator.told import told_assignment, told_subscription
from ottla.coordinator.topics_view import TopicsView, TopicView
from ottla.records.growth import NO_OFFSET, held_back
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.wire.uuids import ZERO_UUID
from ottla.wire.versioned import encode_versioned, read_int16

OffsetsOfGroup: TypeAlias = Mapping[PartitionKey, Committed]
HeldBack: TypeAlias = frozenset[PartitionKey]
NOTHING_HELD: HeldBack = frozenset()


def held_of(topics: TopicsView, names: Iterable[str], offsets: OffsetsOfGroup) -> HeldBack:
    """The partitions of these topics that a group may not read yet."""
    held: set[PartitionKey] = set()
    for topic in _grown(topics, names):
        held.update((topic.name, index) for index in held_back(topic.growths, _position(topic, offsets)))
    return frozenset(held)


def added_to(topics: TopicsView, names: Iterable[str]) -> HeldBack:
    """All partitions of these topics that were added in order."""
    return frozenset(
        (topic.name, index)
        for topic in _grown(topics, names)
        for growth in topic.growths
        for index in growth.new_partitions
    )


def _grown(topics: TopicsView, names: Iterable[str]) -> list[TopicView]:
    found = (topics.by_name.get(name) for name in names)
    return [topic for topic in found if topic is not None and topic.growths]


def _position(topic: TopicView, offsets: OffsetsOfGroup) -> Callable[[int], int]:
    """How far a group is in each partition of a topic."""

    def position(index: int) -> int:
        committed = offsets.get((topic.name, index))
        if committed is None or committed.value.topic_id not in (topic.topic_id, ZERO_UUID):
            return NO_OFFSET
        return committed.value.offset

    return position


# Assignments that a member has made


def without_held(assignment: bytes, held: HeldBack, subscription: bytes = b"") -> bytes:
    """An assignment of the classic protocol without these partitions.

    One that is not understood stays as it is, and so does one with data of its own: that would not fit any more.
    `subscription`: what the member told before. Its data may stand in the assignment, too, as librdkafka has it with
    cooperative-sticky: it says nothing of what is assigned.
    """
    try:
        decoded = told_assignment(assignment)
        version = min(read_int16(assignment, "assignment"), ConsumerProtocolAssignment.versions.highest)
    except ProtocolError:
        return assignment
    assigned = {(each.topic, index) for each in decoded.assigned_partitions for index in each.partitions}
    if held.isdisjoint(assigned) or (decoded.user_data and decoded.user_data != _data_of(subscription)):
        return assignment
    for each in decoded.assigned_partitions:
        each.partitions = [index for index in each.partitions if (each.topic, index) not in held]
    decoded.assigned_partitions = [each for each in decoded.assigned_partitions if each.partitions]
    return encode_versioned(decoded, version)


def _data_of(subscription: bytes) -> bytes | None:
    try:
        return told_subscription(subscription).user_data
    except ProtocolError:
        return None


def assigned_in(assignments: Iterable[bytes]) -> HeldBack:
    """The partitions of assignments, as far as those are understood."""
    found: set[PartitionKey] = set()
    for assignment in assignments:
        try:
            decoded = told_assignment(assignment)
        except ProtocolError:
            continue
        found.update((each.topic, index) for each in decoded.assigned_partitions for index in each.partitions)
    return frozenset(found)
