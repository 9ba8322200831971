"""ConsumerGroupDescribe (69), versions 0 to 1: shows new consumer groups and their members.

Flexible from the start; 1 tells classic members from new ones.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, ignorable
from ottla.wire.types import Bool, Int8, Int16, Int32, String, Uuid


class ConsumerGroupDescribeRequest(Request, api=apis.CONSUMER_GROUP_DESCRIBE):
    group_ids: list[String]
    include_authorized_operations: Bool


class TopicPartitions(Struct):
    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


class Assignment(Struct):
    topic_partitions: list[TopicPartitions]


class Member(Struct):
    member_id: String
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = None
    assignment: Assignment
    target_assignment: Assignment
    member_type: Int8 = ignorable("1+", -1)


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = None
    group_id: String
    group_state: String
    group_epoch: Int32
    assignment_epoch: Int32
    assignor_name: String
    members: list[Member]
    authorized_operations: Int32 = -2147483648


class ConsumerGroupDescribeResponse(Response, api=apis.CONSUMER_GROUP_DESCRIBE):
    throttle_time_ms: Int32 = 0
    groups: list[DescribedGroup]
