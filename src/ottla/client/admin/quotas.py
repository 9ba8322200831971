"""Quotas of clients, as an administrator sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client.admin.types import ClientQuota
from ottla.client.checks import checked_names
from ottla.client.errors import ServerError, raise_for
from ottla.client.network.cluster import Cluster
from ottla.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from ottla.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)

_EXACTLY, _DEFAULT, _ANY = 0, 1, 2


class QuotaAdmin:
    """The part of an Admin that is about quotas. An entity is a kind and a name: {"client-id": "billing"}.

    The name None is the default of all that have no quota of their own.
    """

    _cluster: Cluster

    async def describe_quotas(
        self, entity: Mapping[str, str | None] | None = None, *, any_of: Sequence[str] = ()
    ) -> list[ClientQuota]:
        """Those of one entity, or of any of these kinds, or all."""
        components = [
            ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACTLY, match=name)
            for kind, name in (entity or {}).items()
        ]
        components += [
            ComponentData(entity_type=kind, match_type=_ANY, match=None) for kind in checked_names(any_of, "any_of")
        ]
        request = DescribeClientQuotasRequest(components=components, strict=entity is not None)

        async def attempt() -> DescribeClientQuotasResponse:
            answer = await self._cluster.ask_any(request, DescribeClientQuotasResponse)
            raise_for(answer.error_code, answer.error_message, about="the quotas")
            return answer

        return [
            ClientQuota(
                {part.entity_type: part.entity_name for part in row.entity},
                {value.key: value.value for value in row.values},
            )
            for row in (await self._cluster.retry(attempt)).entries or ()
        ]

    async def alter_quotas(
        self, entity: Mapping[str, str | None], quotas: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Sets quotas of an entity, as {"producer_byte_rate": 1e6}; None removes one. Others stay as they are."""
        entry = EntryData(
            entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
            ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
        )
        request = AlterClientQuotasRequest(entries=[entry], validate_only=validate_only)
        answer = await self._cluster.ask_controller(request, AlterClientQuotasResponse)
        for row in answer.entries:
            if row.error_code:
                raise ServerError(row.error_code, row.error_message, about=f"the quotas of {dict(entity)}")
