"""CreatePartitions (37), versions 0 to 3: adds partitions to topics.

2 is flexible; 3 knows of quotas.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bool, Int16, Int32, String


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32]


class CreatePartitionsTopic(Struct):
    name: String
    count: Int32  # the new total
    assignments: list[CreatePartitionsAssignment] | None  # null lets the broker choose


class CreatePartitionsRequest(Request, api=apis.CREATE_PARTITIONS):
    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool


class CreatePartitionsTopicResult(Struct):
    name: String
    error_code: Int16
    error_message: String | None = None


class CreatePartitionsResponse(Response, api=apis.CREATE_PARTITIONS):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]
