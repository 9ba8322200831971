"""IncrementalAlterConfigs (44), versions 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config.changes import ResourceChange, answered_changes
from ottla.broker.loop.slices import mapped
from ottla.controller.configs import MOST_SETTINGS, ConfigChange
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps


def handle(broker: Broker, request: IncrementalAlterConfigsRequest, context: Context) -> Steps:
    changes = yield from mapped(_change, request.resources)
    answers = yield from answered_changes(
        broker, changes, AlterConfigsResourceResponse, validate_only=request.validate_only, origin=context.origin
    )
    return IncrementalAlterConfigsResponse(responses=answers)


def _change(resource: AlterConfigsResource) -> ResourceChange:
    return ResourceChange(
        resource.resource_type,
        resource.resource_name,
        [
            ConfigChange(config.name, config.config_operation, config.value)
            for config in resource.configs[: MOST_SETTINGS + 1]
        ],
    )
