"""DeleteRecords (21), versions 0 to 2: lets partitions start at an offset; -1 is the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

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


def handle(broker: Broker, request: DeleteRecordsRequest, context: Context) -> DeleteRecordsResponse:
    offsets: dict[str, dict[int, int]] = {}  # a partition that is named twice counts once, as it comes last
    for topic in request.topics:
        for asked in topic.partitions:
            offsets.setdefault(topic.name, {})[asked.partition_index] = asked.offset
    topics = [
        DeleteRecordsTopicResult(
            name=name, partitions=[_delete(broker, name, index, offset) for index, offset in partitions.items()]
        )
        for name, partitions in offsets.items()
    ]
    broker.logs.write_checkpoint(LOG_STARTS)  # or a crash would bring the records back
    return DeleteRecordsResponse(topics=topics)


def _delete(broker: Broker, topic: str, index: int, offset: int) -> DeleteRecordsPartitionResult:
    partition = broker.topics.partition(topic, index)
    code, low_watermark = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1
    if partition is not None:
        try:
            low_watermark = partition.delete_records(offset, broker.clock_ms())
            code = ErrorCode.NONE
        except LogError as refusal:
            code = ErrorCode(refusal.code)
    return DeleteRecordsPartitionResult(partition_index=index, low_watermark=low_watermark, error_code=code)
