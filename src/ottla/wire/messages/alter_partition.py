"""AlterPartition (56), versions 2 to 3: the leader of partitions proposes who is in sync, and the controller decides.

Flexible from the start; 3 tells the epoch of each broker, so that one that has restarted since does not count.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at
from ottla.wire.types import Int8, Int16, Int32, Int64, Uuid


class BrokerState(Struct):
    broker_id: Int32
    broker_epoch: Int64 = -1


class PartitionData(Struct):
    partition_index: Int32
    leader_epoch: Int32
    new_isr: list[Int32] = at("0-2", [])
    new_isr_with_epochs: list[BrokerState] = at("3+", [])
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


class TopicData(Struct):
    topic_id: Uuid
    partitions: list[PartitionData]


class AlterPartitionRequest(Request, api=apis.ALTER_PARTITION):
    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[TopicData]


class PartitionAnswer(Struct):
    partition_index: Int32
    error_code: Int16
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = at("0+", [])
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32 = 0


class TopicAnswer(Struct):
    topic_id: Uuid
    partitions: list[PartitionAnswer]


class AlterPartitionResponse(Response, api=apis.ALTER_PARTITION):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[TopicAnswer]
