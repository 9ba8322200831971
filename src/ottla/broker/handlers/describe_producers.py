"""DescribeProducers (61), version 0: the producers that partitions remember, and their open transactions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, mapped, with_few_repeats
from ottla.controller.topic_names import check_name
from ottla.log.producers import NO_OFFSET, Producer
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context


def handle(broker: Broker, request: DescribeProducersRequest, context: Context) -> Steps:
    topics = [TopicResponse(name=topic.name, partitions=[]) for topic in request.topics]
    named = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    places = [place for topic, place in zip(request.topics, topics, strict=True) for _ in topic.partition_indexes]
    left = Counter(with_few_repeats(named))
    for (name, index), place in zip(named, places, strict=True):
        if left[name, index]:
            left[name, index] -= 1
            partition = yield from _describe(broker, name, index)
            place.partitions.append(partition)
    return DescribeProducersResponse(topics=topics)


def _describe(broker: Broker, topic: str, index: int) -> Generator[None, None, PartitionResponse]:
    yield
    partition = broker.topics.partition(topic, index)
    if partition is None:
        code, message = _complaint(broker, topic, index)
        return PartitionResponse(partition_index=index, error_code=code, error_message=message, active_producers=[])
    known = list(partition.log.producers.by_id.items())
    producers = yield from mapped(lambda item: _state(*item), known)
    return PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=producers)


def _complaint(broker: Broker, topic: str, index: int) -> tuple[ErrorCode, str | None]:
    try:
        check_name(topic)
    except ApiError as refusal:
        return refusal.code, refusal.message
    if topic in broker.topics.by_name:
        return broker.topics.missing_code(topic, index), None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."


def _state(producer_id: int, producer: Producer) -> ProducerState:
    start = producer.transaction_start
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=producer.epoch,
        last_sequence=producer.last_sequence,
        last_timestamp=producer.last_timestamp,
        coordinator_epoch=producer.coordinator_epoch,
        current_txn_start_offset=NO_OFFSET if start is None else start,
    )
