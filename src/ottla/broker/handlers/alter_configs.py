"""AlterConfigs (33), versions 0 to 2. What is set and not named in the request is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config.changes import ResourceChange, answered_changes
from ottla.broker.loop.slices import mapped
from ottla.controller.configs import MOST_SETTINGS, ConfigChange, ConfigOperation
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps


def handle(broker: Broker, request: AlterConfigsRequest, context: Context) -> Steps:
    changes = yield from mapped(_change, request.resources)
    answers = yield from answered_changes(
        broker, changes, AlterConfigsResourceResponse, validate_only=request.validate_only, origin=context.origin
    )
    return AlterConfigsResponse(responses=answers)


def _change(resource: AlterConfigsResource) -> ResourceChange:
    return ResourceChange(
        resource.resource_type,
        resource.resource_name,
        [
            ConfigChange(config.name, ConfigOperation.SET, config.value)
            for config in resource.configs[: MOST_SETTINGS + 1]
        ],
        replaces=True,
    )
