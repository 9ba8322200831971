"""DeleteRecords (21), versions 0 to 2: lets partitions start at an offset; -1 is the high watermark."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ottla.broker.events import Events
from ottla.broker.loop.slices import Finished, Steps, Waiting, mapped
from ottla.controller.topic_names import INTERNAL
from ottla.log.checkpoint import LOG_STARTS
from ottla.log.errors import LogError
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

events = Events("ottla.broker")

LOOK_SECONDS = 0.01  # between two looks at how far the replicas are


def handle(broker: Broker, request: DeleteRecordsRequest, context: Context) -> Steps:
    offsets: dict[str, dict[int, int]] = {}  # a partition that is named twice counts once, as it comes last
    for topic in request.topics:
        for asked in topic.partitions:
            offsets.setdefault(topic.name, {})[asked.partition_index] = asked.offset
    topics = []
    for name, partitions in offsets.items():
        results = yield from mapped(functools.partial(_delete, broker, name), partitions.items())
        topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
    try:
        yield from broker.logs.checkpoint_in_slices(LOG_STARTS)
    except OSError as error:
        events.warning("a crash may bring deleted records back", reason=error)
        _refuse(topics)
    yield from _followed(broker, topics, request.timeout_ms / 1000)
    return DeleteRecordsResponse(topics=topics)


def _followed(broker: Broker, topics: list[DeleteRecordsTopicResult], seconds: float) -> Steps:
    """Wait for the replicas that are in sync: the next leader must not have what is deleted."""
    left = [
        (partition, result)
        for topic in topics
        for result in topic.partitions
        if result.error_code == ErrorCode.NONE
        and (partition := broker.topics.partition(topic.name, result.partition_index)) is not None
        and partition.is_replicated
    ]
    due = broker.loop.now() + seconds
    while left := [each for each in left if each[0].is_leader and not each[0].all_start_at(each[1].low_watermark)]:
        if broker.loop.now() >= due:
            break
        yield Waiting(functools.partial(_look_later, broker))
    for _, result in left:
        result.error_code, result.low_watermark = ErrorCode.REQUEST_TIMED_OUT, -1


def _look_later(broker: Broker, finished: Finished) -> None:
    broker.loop.call_later(LOOK_SECONDS, lambda: finished(None))


def _refuse(topics: list[DeleteRecordsTopicResult]) -> None:
    """The records are gone for readers, and make room; that it lasts can only be said when it is on the disk."""
    for topic in topics:
        for partition in topic.partitions:
            if partition.error_code == ErrorCode.NONE:
                partition.error_code, partition.low_watermark = ErrorCode.KAFKA_STORAGE_ERROR, -1


def _delete(broker: Broker, topic: str, asked: tuple[int, int]) -> DeleteRecordsPartitionResult:
    index, offset = asked
    partition = broker.topics.partition(topic, index)
    code, low_watermark = broker.topics.missing_code(topic, index), -1
    if topic in INTERNAL and broker.topics.has_partition(topic, index):
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
    elif partition is not None:
        try:
            low_watermark = partition.delete_records(offset, broker.clock_ms())
            code = ErrorCode.NONE
        except LogError as refusal:
            code = refusal.code
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
