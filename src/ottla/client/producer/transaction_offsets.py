"""Offsets in a transaction, as the protocol has them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from ottla.client.group.coordinator import Coordinator
from ottla.client.group.offsets import Offset, TopicPartition
from ottla.client.network.retry import Patience
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
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


async def ask_to_keep(
    coordinator: Coordinator, request: TxnOffsetCommitRequest, offsets: Iterable[TopicPartition], at_most: int | None
) -> int:
    """The code of an answer that trying again would not change. A topic that is not known may be a new one, for a
    moment: one that was deleted does not come back while somebody waits."""
    options = coordinator.cluster.options
    unknown = Patience(options.unknown_topic_timeout_ms, options.retry_pause_ms)

    def settled_code(answer: TxnOffsetCommitResponse) -> int:
        code = _first_code(offsets, answer)
        return 0 if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else code

    while True:
        answer = await coordinator.ask_patiently(request, TxnOffsetCommitResponse, settled_code, at_most=at_most)
        code = _first_code(offsets, answer)
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not await unknown.pause():
            return code


def _first_code(offsets: Iterable[TopicPartition], answer: TxnOffsetCommitResponse) -> int:
    """The first error: without one of its offsets the transaction is not committed. One that is left out is none."""
    codes = {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in answer.topics
        for row in topic.partitions
    }
    return next((code for one in offsets if (code := codes.get(one, ErrorCode.UNKNOWN_SERVER_ERROR))), 0)
