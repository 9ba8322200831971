"""Offsets in a transaction, as the protocol has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.client.group.offsets import Offset, TopicPartition
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


def offset_topics(offsets: Mapping[TopicPartition, Offset]) -> list[TxnOffsetCommitRequestTopic]:
    topics: defaultdict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for place, offset in offsets.items():
        topics[place.topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()]


def offset_commit_code(offsets: Iterable[TopicPartition], answer: TxnOffsetCommitResponse) -> int:
    """The first error: without one of its offsets the transaction is not committed. One that is left out is none."""
    codes = {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }
    return next((code for one in offsets if (code := codes.get(one, ErrorCode.UNKNOWN_SERVER_ERROR))), 0)
