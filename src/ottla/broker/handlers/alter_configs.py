"""AlterConfigs (33), versions 0 to 2. What is set and not named in the request is dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.config_changes import ResourceChange, change_configs
from ottla.controller.configs import Asked, Change
from ottla.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.slices import Steps


def handle(broker: Broker, request: AlterConfigsRequest, context: Context) -> Steps:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [Asked(config.name, Change.SET, config.value) for config in resource.configs],
            replaces=True,
        )
        for resource in request.resources
    ]
    outcomes = yield from change_configs(broker, changes, validate_only=request.validate_only)
    return AlterConfigsResponse(
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
