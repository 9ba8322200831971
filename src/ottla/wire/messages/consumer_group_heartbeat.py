"""ConsumerGroupHeartbeat (68), versions 0 to 1: keeps a member in a new consumer group.

The answer carries what the member is to own. Flexible from the start; 1 subscribes by regular expression
and wants the member to choose its id.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at
from ottla.wire.types import Int16, Int32, String, Uuid


class TopicPartitions(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class ConsumerGroupHeartbeatRequest(Request, api=apis.CONSUMER_GROUP_HEARTBEAT):
    group_id: String
    member_id: String
    member_epoch: Int32  # 0 joins, -1 leaves, -2 leaves for a while
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = at("1+", None)
    server_assignor: String | None = None
    topic_partitions: list[TopicPartitions] | None = None


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class ConsumerGroupHeartbeatResponse(Response, api=apis.CONSUMER_GROUP_HEARTBEAT):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32
    heartbeat_interval_ms: Int32
    assignment: Assignment | None = None
