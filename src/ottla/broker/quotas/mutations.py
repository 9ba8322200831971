"""The partitions that one request creates or deletes, counted against the client's `controller_mutation_rate`.

When the quota is used up, clients that know the error are refused, topic by topic. For older clients the work is done,
and they are throttled until they are within their quota again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.quotas.quotas import CONTROLLER_MUTATION_RATE
from ottla.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

NEVER = 1 << 15  # a version that no request has


class Mutations:
    def __init__(self, broker: Broker, context: Context, first_strict_version: int = NEVER) -> None:
        """`first_strict_version`: of the request, whose clients know what THROTTLING_QUOTA_EXCEEDED means."""
        self._broker = broker
        self._context = context
        self._is_strict = context.version >= first_strict_version
        self._throttle_ms = 0

    def charge(self, partitions: int) -> None:
        """Count so many; ApiError if the client may not have them now."""
        quotas, client, now_ms = self._broker.quotas, self._context.client_id, self._broker.steady_ms()
        if not quotas.are_set:
            return
        if self._is_strict:
            throttle_ms = quotas.mutation_throttle_ms(client, now_ms)
            if throttle_ms:
                self._throttle_ms = max(self._throttle_ms, throttle_ms)
                raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
            quotas.charge_mutations(client, partitions, now_ms)
        else:
            quotas.charge_mutations(client, partitions, now_ms)
            self._throttle_ms = max(self._throttle_ms, quotas.mutation_throttle_ms(client, now_ms))

    def throttle(self) -> int:
        """Hold the client back if it went over its quota; for how many milliseconds."""
        return self._broker.hold_back(CONTROLLER_MUTATION_RATE, self._context, self._throttle_ms)
