"""What members of a classic group tell each other, as bytes: subscriptions and assignments in Kafka's formats."""

from __future__ import annotations

import struct
from collections.abc import Iterable

from ottla.client.group.assignors import Assignor, Subscriber, by_topic
from ottla.client.group.offsets import TopicPartition
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)
from ottla.wire.messages.consumer_protocol import TopicPartition as TopicPartitions
from ottla.wire.parts import Buffer
from ottla.wire.versioned import encode_versioned

_SUBSCRIPTION_VERSION = 3
_ASSIGNMENT_VERSION = 1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def encode_subscription(
    assignor: Assignor, topics: Iterable[str], owned: Iterable[TopicPartition], had: Iterable[TopicPartition],
    generation: int,
) -> bytes:  # fmt: skip
    """`owned` is what the member has, `had` what it had before it gave it up, as of `generation`."""
    user_data = None
    if assignor.tells_owned:
        user_data = _encode_sticky(had, generation)
    elif assignor.is_cooperative:
        user_data = _INT32.pack(generation)
    subscription = ConsumerProtocolSubscription(
        topics=sorted(topics),
        user_data=user_data,
        owned_partitions=_rows(owned),
        generation_id=generation,
    )
    return encode_versioned(subscription, _SUBSCRIPTION_VERSION)


def read_subscriber(data: Buffer, assignor: Assignor, instance_id: str | None) -> Subscriber:
    subscription = decode_subscription(data)
    owned = _places(subscription.owned_partitions)
    generation = subscription.generation_id
    if assignor.tells_owned and subscription.user_data:
        owned, generation = _decode_sticky(subscription.user_data)
    elif assignor.is_cooperative and generation < 0 and subscription.user_data:
        (generation,) = _INT32.unpack_from(subscription.user_data)
    return Subscriber(frozenset(subscription.topics), frozenset(owned), generation, instance_id)


def encode_assignment(places: Iterable[TopicPartition]) -> bytes:
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=_rows(places)), _ASSIGNMENT_VERSION)


def read_assignment(data: Buffer) -> set[TopicPartition]:
    return _places(decode_assignment(data).assigned_partitions) if data else set()


def _rows(places: Iterable[TopicPartition]) -> list[TopicPartitions]:
    return [TopicPartitions(topic=topic, partitions=indexes) for topic, indexes in by_topic(places).items()]


def _places(rows: Iterable[TopicPartitions]) -> set[TopicPartition]:
    return {TopicPartition(row.topic, index) for row in rows for index in row.partitions}


def _encode_sticky(places: Iterable[TopicPartition], generation: int) -> bytes:
    """What Kafka's sticky assignor keeps: topics with their partitions, and the generation."""
    topics = by_topic(places)
    parts = [_INT32.pack(len(topics))]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += [_INT16.pack(len(name)), name, _INT32.pack(len(indexes)), *map(_INT32.pack, indexes)]
    return b"".join([*parts, _INT32.pack(generation)])


def _decode_sticky(data: Buffer) -> tuple[set[TopicPartition], int]:
    """The version without a generation ends before it. What cannot be read says nothing."""
    places: set[TopicPartition] = set()
    try:
        (count,) = _INT32.unpack_from(data, 0)
        at = _INT32.size
        for _ in range(count):
            (size,) = _INT16.unpack_from(data, at)
            topic = bytes(data[at + 2 : at + 2 + size]).decode()
            at += 2 + size
            (partitions,) = _INT32.unpack_from(data, at)
            for number in range(1, partitions + 1):
                (index,) = _INT32.unpack_from(data, at + 4 * number)
                places.add(TopicPartition(topic, index))
            at += 4 * (partitions + 1)
        generation = _INT32.unpack_from(data, at)[0] if len(data) - at >= _INT32.size else -1
    except (struct.error, UnicodeDecodeError):
        return set(), -1
    return places, generation
