"""FailReplicas (30005), version 0: a broker tells the controller of all its replicas whose disk failed.

Ottla's own: it is not advertised. Flexible from the start.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct
from ottla.wire.types import Int16, Int32, Int64, Uuid


class FailedTopic(Struct):
    topic_id: Uuid
    partitions: list[Int32]


class FailReplicasRequest(Request, api=apis.FAIL_REPLICAS):
    broker_id: Int32
    broker_epoch: Int64
    topics: list[FailedTopic]


class FailReplicasResponse(Response, api=apis.FAIL_REPLICAS):
    error_code: Int16 = 0
