"""ClusterFeed (30000), version 0: a broker asks the controller for what was decided since it last asked.

Ottla's own: it is not advertised. The request is the broker's sign of life, too. It waits at the controller until there
is something to tell. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, tagged
from ottla.wire.types import Bool, Bytes, Int8, Int16, Int32, Int64, String, Uuid


class RottenPartition(Struct):
    topic_id: Uuid
    partition_index: Int32


class ClusterFeedRequest(Request, api=apis.CLUSTER_FEED):
    broker_id: Int32
    broker_epoch: Int64  # of its registration
    controller_epoch: Int32 = -1  # in which it was told what it knows
    position: Int64 = -1  # up to where it was told
    part: Int32 = 0  # of the snapshot at this position, that it wants next
    max_wait_ms: Int32 = 0
    is_ready: Bool = False  # whether its data is open
    loss: Int8 = 0  # what it may lack of what it had before it was started: 1 the last records, 2 all
    rotten: list[RottenPartition] = tagged(0, "0+", [], ignorable=True)  # only these lack anything; none: all may


class ClusterFeedResponse(Response, api=apis.CLUSTER_FEED):
    error_code: Int16 = 0
    error_message: String | None = None
    controller_id: Int32 = -1
    controller_epoch: Int32 = -1
    position: Int64 = -1  # with these changes
    parts: Int32 = 0  # of the snapshot that this is one of; 0: these are the changes that follow
    cluster_id: String = ""
    changes: Bytes = b""
