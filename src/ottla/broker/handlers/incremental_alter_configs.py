"""IncrementalAlterConfigs (44), versions 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config_changes import ResourceChange, change_configs
from ottla.controller.configs import Asked
from ottla.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.slices import Steps


def handle(broker: Broker, request: IncrementalAlterConfigsRequest, context: Context) -> Steps:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [Asked(config.name, config.config_operation, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    outcomes = yield from change_configs(broker, changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=0 if refusal is None else refusal.code,
                error_message=None if refusal is None else refusal.message,
                resource_type=change.kind,
                resource_name=change.name,
            )
            for change, refusal in zip(changes, outcomes, strict=True)
        ]
    )
