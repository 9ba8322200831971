"""Topics that grow in order, as an administrator has them grow and looks at them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ottla.client.admin.cluster import ClusterAdmin
from ottla.client.checks import checked_names
from ottla.client.errors import MalformedAnswer, ServerError, all_or_error, raise_for
from ottla.client.network.cluster import Cluster
from ottla.records.growth import CONFIG_NAME, Growth, decode_growths
from ottla.records.placement import MURMUR2
from ottla.wire.apis import GROWTH_FEATURE
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.wire.messages.expand_in_order import ExpandedTopic, ExpandInOrderRequest, ExpandInOrderResponse

QUIET_MS = 2000
TOPIC_KIND = 2


class GrowthAdmin(ClusterAdmin):
    """The part of an Admin that is about topics that grow in order."""

    async def expand_in_order(
        self,
        partition_counts: Mapping[str, int],
        *,
        partitioner: str = MURMUR2,
        quiet_ms: int = QUIET_MS,
        validate_only: bool = False,
    ) -> list[str]:
        """Give topics more partitions and keep the order of every key: a multiple each of what it has.

        It returns when that has begun. `describe_growths` tells when the new partitions are open. UnsupportedByBroker
        where the cluster cannot do that, as Apache Kafka's cannot.
        """
        request = ExpandInOrderRequest(
            topics=[
                ExpandedTopic(name=name, count=count, partitioner=partitioner, quiet_ms=quiet_ms)
                for name, count in partition_counts.items()
            ],
            validate_only=validate_only,
        )
        answer = await self._ask_controller(
            request, ExpandInOrderResponse, lambda answer: {row.error_code for row in answer.results}
        )
        for name in partition_counts:
            self._cluster.forget(name)
        errors = [
            ServerError(row.error_code, row.error_message, topic=row.name) for row in answer.results if row.error_code
        ]
        return all_or_error(errors, [row.name for row in answer.results if not row.error_code])

    async def describe_growths(self, names: Sequence[str]) -> dict[str, tuple[Growth, ...]]:
        """How topics have grown in order, the first time first; nothing for those that never did."""
        return await find_growths(self._cluster, checked_names(names, "names"))


async def find_growths(cluster: Cluster, names: Sequence[str]) -> dict[str, tuple[Growth, ...]]:
    if GROWTH_FEATURE not in await cluster.retry(cluster.features):
        return dict.fromkeys(names, ())  # and who may read topics of Apache Kafka may not be allowed to ask
    request = DescribeConfigsRequest(
        resources=[
            DescribeConfigsResource(resource_type=TOPIC_KIND, resource_name=name, configuration_keys=[CONFIG_NAME])
            for name in names
        ]
    )

    async def attempt() -> DescribeConfigsResponse:
        answer = await cluster.ask_any(request, DescribeConfigsResponse)
        for row in answer.results:
            raise_for(row.error_code, row.error_message, topic=row.resource_name)
        return answer

    answer = await cluster.retry(attempt)
    return {
        row.resource_name: growths_of(next((each.value for each in row.configs if each.name == CONFIG_NAME), None))
        for row in answer.results
    }


def growths_of(text: str | None) -> tuple[Growth, ...]:
    """What the entry of a topic's configurations says; None: there is none."""
    try:
        return () if text is None else decode_growths(json.loads(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedAnswer(f"{CONFIG_NAME} is not understood: {error}") from error
