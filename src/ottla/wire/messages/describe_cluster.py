"""DescribeCluster (60), versions 0 to 2: tells the brokers of the cluster, its controller and its id.

Flexible from the start; 1 can ask for controllers; 2 for fenced brokers.
"""

from __future__ import annotations

from ottla.wire import apis
from ottla.wire.schema import Request, Response, Struct, at
from ottla.wire.types import Bool, Int8, Int16, Int32, String


class DescribeClusterRequest(Request, api=apis.DESCRIBE_CLUSTER):
    include_cluster_authorized_operations: Bool
    endpoint_type: Int8 = at("1+", 1)  # 1 brokers, 2 controllers
    include_fenced_brokers: Bool = at("2+", False)


class DescribeClusterBroker(Struct):
    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = None
    is_fenced: Bool = at("2+", False)


class DescribeClusterResponse(Response, api=apis.DESCRIBE_CLUSTER):
    throttle_time_ms: Int32 = 0
    error_code: Int16
    error_message: String | None = None
    endpoint_type: Int8 = at("1+", 1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker]
    cluster_authorized_operations: Int32 = -2147483648
