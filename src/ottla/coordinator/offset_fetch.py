"""OffsetFetch: what one group has committed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.coordinator.offsets import Committed, PartitionKey
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.wire.uuids import ZERO_UUID

if TYPE_CHECKING:
    from ottla.coordinator.group_machine import GroupMachine

NO_OFFSET = -1


def fetch(
    machine: GroupMachine, asked: OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
) -> OffsetFetchResponseGroup:
    """`by_id`: topics are named by their ids."""
    group = machine.groups.get(asked.group_id)
    code = ErrorCode.NONE if group is None else group.check_fetch(asked.member_id, asked.member_epoch)
    if code is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=code)
    reader = _Reader(machine, asked.group_id, require_stable)
    topics = reader.all_topics(by_id) if asked.topics is None else [reader.topic(each, by_id) for each in asked.topics]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)


class _Reader:
    def __init__(self, machine: GroupMachine, group_id: str, require_stable: bool) -> None:
        self._machine = machine
        self._offsets = machine.offsets
        self._group_id = group_id
        self._committed = machine.offsets.of_group(group_id)
        self._require_stable = require_stable

    def topic(self, asked: OffsetFetchRequestTopics, by_id: bool) -> OffsetFetchResponseTopics:
        name: str | None = asked.name
        if by_id:
            topic = self._machine.topics.by_id.get(asked.topic_id)
            name = None if topic is None else topic.name
        if name is None:
            partitions = [_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes]
        else:
            partitions = [self._partition((name, index)) for index in asked.partition_indexes]
        return OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=partitions)

    def all_topics(self, by_id: bool) -> list[OffsetFetchResponseTopics]:
        """Whatever was committed; by their ids only topics that are there can be named."""
        topics = self._machine.topics.by_name
        answers = []
        for name, indexes in _by_topic(self._committed):
            topic = topics.get(name)
            if topic is None and by_id:
                continue
            answers.append(
                OffsetFetchResponseTopics(
                    name=name,
                    topic_id=ZERO_UUID if topic is None else topic.topic_id,
                    partitions=[self._partition((name, index)) for index in indexes],
                )
            )
        return answers

    def _partition(self, partition: PartitionKey) -> OffsetFetchResponsePartitions:
        name, index = partition
        if self._require_stable and self._offsets.is_pending(self._group_id, partition):
            return _nothing(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._committed.get(partition)
        if committed is None or self._is_of_another_topic(name, committed):
            return _nothing(index, ErrorCode.NONE)
        value = committed.value
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=value.offset,
            committed_leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            error_code=ErrorCode.NONE,
        )

    def _is_of_another_topic(self, name: str, committed: Committed) -> bool:
        """Whether it was committed for a topic of the same name that was deleted since."""
        topic = self._machine.topics.by_name.get(name)
        return topic is not None and committed.value.topic_id not in (topic.topic_id, ZERO_UUID)


def _nothing(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _by_topic(partitions: Iterable[PartitionKey]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return list(topics.items())
