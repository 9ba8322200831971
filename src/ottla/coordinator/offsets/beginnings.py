"""Where groups begin to read partitions that their topic gets when it grows in order.

A group that has committed the parent begins with the first record of the new partition, also if it begins at the end of
topics that it does not know. Otherwise it would lose what was written before it was given the partition. So the first
offset is committed for it while the topic grows. A group that comes later has no such offset: its members say where it
begins.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.offsets.commit import RECORD_VERSION
from ottla.coordinator.offsets.offsets import PartitionKey
from ottla.coordinator.operation import Operation, Work
from ottla.coordinator.topics_view import TopicView
from ottla.records.growth import Growth, is_growing
from ottla.wire.messages.offset_and_group_records import OffsetCommitKey, OffsetCommitValue
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

WRITTEN_AT_ONCE = 100
FIRST_OFFSET = 0


def begin_new_partitions(machine: GroupMachine, names: Iterable[str]) -> Work:
    """Of these topics, those that grow at the moment, however far they have come when a step is taken."""
    topics = machine.topics.by_name
    growing = [topics[name] for name in names if name in topics and is_growing(topics[name].growths)]
    return _beginning(machine, [(topic, topic.growths[-1]) for topic in growing])


def _beginning(machine: GroupMachine, growing: list[tuple[TopicView, Growth]]) -> Work:
    for topic, growth in growing:
        for group_id in machine.offsets.groups_with(topic.name):
            for start in range(growth.first, growth.total, WRITTEN_AT_ONCE):
                indexes = range(start, min(start + WRITTEN_AT_ONCE, growth.total))
                yield functools.partial(_begin, machine, group_id, topic, growth, indexes)


def _begin(
    machine: GroupMachine, group_id: str, topic: TopicView, growth: Growth, indexes: range, operation: Operation
) -> None:
    for index in indexes:
        parent = topic.name, growth.parent_of(index)
        if _is_committed(machine, group_id, topic, parent) and not _is_committed(
            machine, group_id, topic, (topic.name, index)
        ):
            key = OffsetCommitKey(group=group_id, topic=topic.name, partition=index)
            value = OffsetCommitValue(
                offset=FIRST_OFFSET, metadata="", commit_timestamp=operation.now_ms, topic_id=topic.topic_id
            )
            operation.write(key, value, RECORD_VERSION)


def _is_committed(machine: GroupMachine, group_id: str, topic: TopicView, partition: PartitionKey) -> bool:
    """Be it in a transaction that is still open."""
    latest = machine.offsets.latest(group_id, partition)
    return latest is not None and latest.value.topic_id in (topic.topic_id, ZERO_UUID)
