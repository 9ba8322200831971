"""ReportGrowth (30003), version 0: leaders tell the controller how far topics are that grow in order.

Ottla's own: it is not advertised. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bool, Int16, Int32, Int64, Uuid


class LoweredFence(Struct):
    first: Int32  # how many partitions there were before that growth
    fence: Int64  # -1: it holds nobody back any more


class PartitionReport(Struct):
    partition_index: Int32
    leader_epoch: Int32
    is_drained: Bool = False  # no record of a key that goes has come for a while
    has_fence: Bool = False
    fence: Int64 = -1  # -1: there is nothing to read before
    lowered: list[LoweredFence]


class TopicReport(Struct):
    topic_id: Uuid
    partitions: list[PartitionReport]


class ReportGrowthRequest(Request, api=apis.REPORT_GROWTH):
    broker_id: Int32
    broker_epoch: Int64
    topics: list[TopicReport]


class ReportGrowthResponse(Response, api=apis.REPORT_GROWTH):
    error_code: Int16 = 0
