"""AlterClientQuotas (49), versions 0 to 1. An entity that comes twice is refused, others are altered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps, mapped, parts_of
from ottla.controller.changes import ChangedQuotas
from ottla.controller.quotas import Alteration, Entity, altered, check_entity, entity_of, shown
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    EntryResult,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

ALTERED_AT_ONCE = 50


def handle(broker: Broker, request: AlterClientQuotasRequest, context: Context) -> Steps:
    entries = yield from mapped(lambda entry: (_entity(entry), entry), request.entries)
    named = Counter(entity for entity, _ in entries)
    results: dict[Entity, EntryResult] = {}
    for part in parts_of(entries, ALTERED_AT_ONCE):
        results.update((yield from _altered(broker, part, named, validate_only=request.validate_only)))
    return AlterClientQuotasResponse(entries=list(results.values()))


def _altered(
    broker: Broker, entries: Sequence[tuple[Entity, EntryData]], named: Counter[Entity], *, validate_only: bool
) -> Steps:
    """What became of some entities, which are changed all at once."""
    results: dict[Entity, EntryResult] = {}

    def refuse(entity: Entity, refusal: ApiError) -> None:
        results[entity].error_code, results[entity].error_message = refusal.code, refusal.message

    def decide() -> list[ChangedQuotas]:
        changes: list[ChangedQuotas] = []
        for entity, entry in entries:
            parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
            results[entity] = EntryResult(error_code=0, entity=parts)
            try:
                quotas = _quotas(broker, entity, entry, is_named_twice=named[entity] > 1)
                changes.append(ChangedQuotas(entity, quotas))
            except ApiError as refusal:
                refuse(entity, refusal)
        return [] if validate_only else changes

    for change, refusal in (yield from broker.controller.decided(decide)):
        if refusal is not None and isinstance(change, ChangedQuotas):
            refuse(change.entity, refusal)
    return results


def _entity(entry: EntryData) -> Entity:
    return entity_of((part.entity_type, part.entity_name) for part in entry.entity)


def _quotas(broker: Broker, entity: Entity, entry: EntryData, *, is_named_twice: bool) -> dict[str, float]:
    """What the entity will have."""
    if is_named_twice or len({op.key for op in entry.ops}) < len(entry.ops):
        message = f"Ignoring duplicate entity ClientQuotaEntity(entries={shown(entity)})"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    check_entity(entity)
    alterations = [Alteration(op.key, None if op.remove else op.value) for op in entry.ops]
    return altered(entity, broker.controller.cluster.quotas.get(entity, {}), alterations)
