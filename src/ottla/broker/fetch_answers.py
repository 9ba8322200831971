"""The parts of an answer to Fetch, for consumers and for other replicas."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData

if TYPE_CHECKING:
    from ottla.replica.partition import Read

NO_RECORDS = b""


def answered_topic(
    topics: MutableMapping[str | bytes, FetchableTopicResponse], name_or_id: str | bytes
) -> FetchableTopicResponse:
    """The part of an answer that has the partitions of a topic, begun if there is none yet."""
    topic = topics.get(name_or_id)
    if topic is None:
        topic = topics[name_or_id] = FetchableTopicResponse(partitions=[])
        if isinstance(name_or_id, str):
            topic.topic = name_or_id
        else:
            topic.topic_id = name_or_id
    return topic


def found(index: int, read: Read) -> PartitionData:
    """What was read of a partition."""
    aborted = None
    if read.aborted is not None:
        aborted = [
            AbortedTransaction(producer_id=entry.producer_id, first_offset=entry.first_offset) for entry in read.aborted
        ]
    diverging = None
    if read.diverging is not None:
        diverging = EpochEndOffset(epoch=read.diverging[0], end_offset=read.diverging[1])
    return PartitionData(
        partition_index=index,
        error_code=0,
        high_watermark=read.high_watermark,
        last_stable_offset=read.last_stable_offset,
        log_start_offset=read.log_start_offset,
        diverging_epoch=diverging,
        aborted_transactions=aborted,
        records=NO_RECORDS if read.records is None else read.records,
    )


def failed(index: int, code: ErrorCode, log_start_offset: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=log_start_offset,
        aborted_transactions=None,
        records=NO_RECORDS,
    )
