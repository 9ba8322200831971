"""LeaveCluster (30002), version 0: a broker that is about to stop asks the controller to have others lead.

Ottla's own: it is not advertised. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response
from ottla.wire.types import Int16, Int32, Int64


class LeaveClusterRequest(Request, api=apis.LEAVE_CLUSTER):
    broker_id: Int32
    broker_epoch: Int64


class LeaveClusterResponse(Response, api=apis.LEAVE_CLUSTER):
    error_code: Int16 = 0
    partitions_left: Int32 = 0  # that it leads still, because nobody else can
