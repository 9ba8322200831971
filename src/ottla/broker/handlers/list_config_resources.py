"""ListConfigResources (74), versions 0 to 1. Version 0 asks for client metrics alone, of which there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.configs import ResourceType
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_TYPES = 1


def handle(broker: Broker, request: ListConfigResourcesRequest, context: Context) -> ListConfigResourcesResponse:
    if context.version < FIRST_VERSION_WITH_TYPES:
        asked = {int(ResourceType.CLIENT_METRICS)}
    else:
        asked = set(request.resource_types) or set(ResourceType)
    if not asked <= set(ResourceType):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[])
    names = {
        ResourceType.BROKER_LOGGER: [str(broker.node_id)],
        ResourceType.BROKER: [str(broker.node_id)],
        ResourceType.TOPIC: [topic.name for topic in broker.topics],
        ResourceType.GROUP: list(broker.cluster.group_configs),
    }
    return ListConfigResourcesResponse(
        error_code=0,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in names
            if kind in asked
            for name in names[kind]
        ],
    )
