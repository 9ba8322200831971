"""DescribeClientQuotas (48), versions 0 to 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.quotas import check_components, matches
from ottla.wire.errors import ApiError
from ottla.wire.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps


def handle(broker: Broker, request: DescribeClientQuotasRequest, context: Context) -> Steps:
    try:
        check_components(request.components)
    except ApiError as refusal:
        return DescribeClientQuotasResponse(error_code=refusal.code, error_message=refusal.message, entries=None)
    entries = []
    for entity, quotas in list(broker.cluster.quotas.items()):
        if matches(entity, request.components, strict=request.strict):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=quotas[key]) for key in sorted(quotas)],
                )
            )
        yield None
    return DescribeClientQuotasResponse(error_code=0, error_message="", entries=entries)
