"""What members of classic consumer groups tell each other. The broker looks into it only to describe groups.

1 lists the partitions owned, for cooperative rebalancing; 2 the generation they were owned in; 3 the rack.
The version stands in front (wire/versioned.py). Later versions only add, so one from the future is read as
the highest known.
"""

from __future__ import annotations

from ottla.wire.parts import Buffer
from ottla.wire.schema import Message, Struct, ignorable
from ottla.wire.types import Bytes, Int32, String
from ottla.wire.versioned import decode_versioned


class TopicPartition(Struct):
    topic: String
    partitions: list[Int32]


class ConsumerProtocolSubscription(Message, versions="0-3"):
    topics: list[String]
    user_data: Bytes | None = None
    owned_partitions: list[TopicPartition] = ignorable("1+", [])
    generation_id: Int32 = ignorable("2+", -1)
    rack_id: String | None = ignorable("3+", None)


class ConsumerProtocolAssignment(Message, versions="0-3"):
    assigned_partitions: list[TopicPartition]
    user_data: Bytes | None = None


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    return decode_versioned(ConsumerProtocolSubscription, data, newer_as_highest=True)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    return decode_versioned(ConsumerProtocolAssignment, data, newer_as_highest=True)
