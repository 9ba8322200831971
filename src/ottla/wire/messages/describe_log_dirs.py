"""DescribeLogDirs (35), versions 1 to 5: shows the log directories of a broker and what lies in them.

2 is flexible; 3 has an error for the whole; 4 tells the size of the volume; 5 whether a directory is
cordoned.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, ignorable
from ottla.wire.types import Bool, Int16, Int32, Int64, String


class DescribableLogDirTopic(Struct):
    topic: String
    partitions: list[Int32]


class DescribeLogDirsRequest(Request, api=apis.DESCRIBE_LOG_DIRS):
    topics: list[DescribableLogDirTopic] | None  # null asks for all


class DescribeLogDirsPartition(Struct):
    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64
    is_future_key: Bool


class DescribeLogDirsTopic(Struct):
    name: String
    partitions: list[DescribeLogDirsPartition]


class DescribeLogDirsResult(Struct):
    error_code: Int16
    log_dir: String
    topics: list[DescribeLogDirsTopic]
    total_bytes: Int64 = ignorable("4+", -1)
    usable_bytes: Int64 = ignorable("4+", -1)
    is_cordoned: Bool = ignorable("5+", False)


class DescribeLogDirsResponse(Response, api=apis.DESCRIBE_LOG_DIRS):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = ignorable("3+", 0)
    results: list[DescribeLogDirsResult]
