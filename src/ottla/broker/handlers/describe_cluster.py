"""DescribeCluster (60), versions 0 to 2. There are brokers to describe and no controllers apart from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.access.authorizer import CLUSTER_OPERATIONS, OPERATIONS_NOT_ASKED
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

BROKERS = 1
CONTROLLERS = 2


def handle(broker: Broker, request: DescribeClusterRequest, context: Context) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        message = "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
        return _refused(ErrorCode.MISMATCHED_ENDPOINT_TYPE, message)
    if request.endpoint_type != BROKERS:
        message = f"Unsupported endpoint type {request.endpoint_type}"
        return _refused(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, message)
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else OPERATIONS_NOT_ASKED
    return DescribeClusterResponse(
        error_code=0,
        cluster_id=broker.cluster_id,
        controller_id=broker.membership.controller_id,
        brokers=[
            DescribeClusterBroker(
                broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack, is_fenced=each.is_fenced
            )
            for each in broker.brokers.of_listener(context.listener, also_fenced=request.include_fenced_brokers)
        ],
        cluster_authorized_operations=operations,
    )


def _refused(code: ErrorCode, message: str) -> DescribeClusterResponse:
    return DescribeClusterResponse(error_code=code, error_message=message, cluster_id="", brokers=[])
