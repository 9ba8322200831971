"""OffsetForLeaderEpoch (23), versions 2 to 4: where a leader epoch ended, so that a log can be compared."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, mapped
from ottla.log.errors import LogError
from ottla.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: OffsetForLeaderEpochRequest, context: Context) -> Steps:
    topics = []
    for topic in request.topics:
        partitions = yield from mapped(functools.partial(_answer, broker, topic.topic), topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        yield None
    return OffsetForLeaderEpochResponse(topics=topics)


def _answer(broker: Broker, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = broker.topics.partition(topic, asked.partition)
    if partition is None:
        code = broker.topics.missing_code(topic, asked.partition)
        return EpochEndOffset(partition=asked.partition, error_code=code)
    try:
        partition.check_epoch(asked.current_leader_epoch)
        partition.check_leader()
    except LogError as refusal:
        return EpochEndOffset(partition=asked.partition, error_code=refusal.code)
    epoch, end_offset = partition.end_of_epoch(asked.leader_epoch)
    return EpochEndOffset(partition=asked.partition, error_code=0, leader_epoch=epoch, end_offset=end_offset)
