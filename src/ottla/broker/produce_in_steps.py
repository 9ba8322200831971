"""Produce requests of many partitions, or with batches that take long to check: others come in between."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, cast

from ottla.broker.in_steps import InSteps
from ottla.log.errors import LogError
from ottla.records.validate import InvalidRecords, LargeBatch
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.handlers.produce import Produced
    from ottla.broker.loop.slices import Job, Steps
    from ottla.wire.messages.produce import PartitionProduceData, PartitionProduceResponse, TopicProduceData
    from ottla.wire.parts import Buffer


def in_steps(produced: Produced) -> Steps:
    """Append what is not appended yet, and let others in between."""
    produced.context.in_steps = InSteps(produced.broker.produce_slices, lambda: _own_memory(produced))
    return _steps(produced)


def _own_memory(produced: Produced) -> None:
    """The frame is good only until the handler returns: what outlives it keeps the memory, or has its own copy."""
    if produced.context.connection.leave_memory():
        return
    for topic in produced.topics:
        for data in topic.partition_data:
            if data.records is not None:
                data.records = memoryview(bytearray(cast("Buffer", data.records)))


def _steps(produced: Produced) -> Steps:
    for number, topic in enumerate(produced.topics):
        begun = number < len(produced.answers)
        answers = produced.answers[number].partition_responses if begun else produced.begin(topic)
        for data in topic.partition_data[len(answers) :]:
            answers.append((yield from _partition(produced, topic, data)))
            data.records = None
            yield None
    produced.appended()


def _partition(
    produced: Produced, topic: TopicProduceData, data: PartitionProduceData
) -> Generator[Job | None, None, PartitionProduceResponse]:
    try:
        return produced.partition(topic, data)
    except LargeBatch as batch:
        large = LargeBatch(memoryview(bytearray(batch.batch)), batch.header)
    index, version = data.index, produced.version
    partition = produced.target(topic, index)
    assert partition is not None
    placement = partition.log.placement
    try:
        validated = yield from partition.writer.validate_large(large, produced.now_ms)
        if produced.target(topic, index) is not partition:  # it was deleted meanwhile
            return produced.refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.log.placement is not placement:  # its topic grows: keys were not looked at as they must be
            return produced.refused(index, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if produced.has_transactional_id and produced.comes_too_late(partition, large.batch):
            return produced.refused(index, ErrorCode.INVALID_TXN_STATE, partition.log.log_start_offset)
        placed = partition.writer.append_validated(validated, version, produced.now_ms, produced.acks)
    except (InvalidRecords, LogError) as refusal:
        return produced.not_appended(partition, index, refusal)
    return produced.wait(partition, index, placed, len(large.batch))
