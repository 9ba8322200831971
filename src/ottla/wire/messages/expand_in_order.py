"""ExpandInOrder (30004), version 0: adds partitions to topics and keeps the order of every key.

Ottla's own: it is not advertised. Who wants to ask looks for the feature `ottla.growth.version`. Flexible from the
start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.messages.create_partitions import CreatePartitionsTopicResult
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Bool, Int32, String


class ExpandedTopic(Struct):
    name: String
    count: Int32  # the new total, a multiple of the one before
    partitioner: String = "murmur2"  # how the topic's producers choose the partition of a key
    quiet_ms: Int32 = 2000  # for how long nothing may come from producers that do not know of the new partitions


class ExpandInOrderRequest(Request, api=apis.EXPAND_IN_ORDER):
    topics: list[ExpandedTopic]
    validate_only: Bool = False


class ExpandInOrderResponse(Response, api=apis.EXPAND_IN_ORDER):
    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]
