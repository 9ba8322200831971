"""OffsetFetch: what one group has committed."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.offsets.offsets import Committed, PartitionKey
from ottla.coordinator.topics_view import TopicsView
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
NO_PARTITIONS: frozenset[PartitionKey] = frozenset()
ANSWERED_AT_ONCE = 500
SORTED_AT_ONCE = 5000

_Answered: TypeAlias = tuple[str | None, OffsetFetchResponseTopics, list[int]]
"""A topic's name if it is known, the answer for it without its partitions, and those."""


def fetch(
    machine: GroupMachine, asked: OffsetFetchRequestGroup, *, by_id: bool, require_stable: bool
) -> OffsetFetchResponseGroup | FetchedOffsets:
    """The answer, or what it is made of in steps where it has very many partitions. `by_id`: of topics."""
    group = machine.groups.get(asked.group_id)
    code = ErrorCode.NONE if group is None else group.check_fetch(asked.member_id, asked.member_epoch)
    if code is not ErrorCode.NONE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, topics=[], error_code=code)
    committed, pending = machine.offsets.of_group(asked.group_id), NO_PARTITIONS
    if require_stable and machine.offsets.has_pending(asked.group_id):
        pending = frozenset(machine.offsets.pending(asked.group_id))
    count = len(committed)
    if asked.topics is not None:
        count = len(asked.topics) + sum([len(topic.partition_indexes) for topic in asked.topics])
    if count <= ANSWERED_AT_ONCE:
        return FetchedOffsets(machine.topics, asked, by_id, committed, pending).response()
    return FetchedOffsets(machine.topics, asked, by_id, dict(committed), pending)


class FetchedOffsets:
    """What a group has committed at one time, to be answered as it was asked for."""

    def __init__(
        self,
        topics: TopicsView,
        asked: OffsetFetchRequestGroup,
        by_id: bool,
        committed: Mapping[PartitionKey, Committed],
        pending: frozenset[PartitionKey],
    ) -> None:
        self._topics = topics
        self._asked = asked
        self._by_id = by_id
        self._committed = committed
        self._pending = pending

    def response(self) -> OffsetFetchResponseGroup:
        steps = self.steps()
        while True:
            try:
                next(steps)
            except StopIteration as end:
                response: OffsetFetchResponseGroup = end.value
                return response

    def steps(self) -> Generator[None, None, OffsetFetchResponseGroup]:
        """Yields between some hundred partitions."""
        answers: list[OffsetFetchResponseTopics] = []
        if self._asked.topics is None:
            asked = self._all((yield from _by_topic(self._committed)))
        else:
            asked = map(self._named, self._asked.topics)
        room = ANSWERED_AT_ONCE
        for name, answer, indexes in asked:
            answers.append(answer)
            room -= 1  # topics without partitions take their time, too
            if room <= 0:
                yield
                room = ANSWERED_AT_ONCE
            for start in range(0, len(indexes), ANSWERED_AT_ONCE):
                some = indexes[start : start + ANSWERED_AT_ONCE]
                if name is None:
                    answer.partitions += [_nothing(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in some]
                else:
                    answer.partitions += [self._partition((name, index)) for index in some]
                room -= len(some)
                if room <= 0:
                    yield
                    room = ANSWERED_AT_ONCE
        return OffsetFetchResponseGroup(group_id=self._asked.group_id, topics=answers)

    def _named(self, asked: OffsetFetchRequestTopics) -> _Answered:
        name: str | None = asked.name
        if self._by_id:
            topic = self._topics.by_id.get(asked.topic_id)
            name = None if topic is None else topic.name
        answer = OffsetFetchResponseTopics(name=asked.name, topic_id=asked.topic_id, partitions=[])
        return name, answer, asked.partition_indexes

    def _all(self, committed: Iterable[tuple[str, list[int]]]) -> Iterator[_Answered]:
        """Whatever was committed; by their ids only topics that are there can be named."""
        for name, indexes in committed:
            topic = self._topics.by_name.get(name)
            if topic is not None or not self._by_id:
                topic_id = ZERO_UUID if topic is None else topic.topic_id
                yield name, OffsetFetchResponseTopics(name=name, topic_id=topic_id, partitions=[]), indexes

    def _partition(self, partition: PartitionKey) -> OffsetFetchResponsePartitions:
        name, index = partition
        if partition in self._pending:
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
        topic = self._topics.by_name.get(name)
        return topic is not None and committed.value.topic_id not in (topic.topic_id, ZERO_UUID)


def _nothing(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code
    )


def _by_topic(partitions: Iterable[PartitionKey]) -> Generator[None, None, list[tuple[str, list[int]]]]:
    topics: dict[str, list[int]] = {}
    for number, (name, index) in enumerate(partitions, start=1):
        topics.setdefault(name, []).append(index)
        if not number % SORTED_AT_ONCE:
            yield
    return list(topics.items())
