"""Who may connect: how many connections there are and may be, in all and from one address, and how many a second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ottla.broker.quotas.quotas import Quotas, Rate

NO_LIMIT = 2**31 - 1


class Admission:
    """The limits of all listeners together. Each connection that entered must leave, however it ends."""

    def __init__(
        self, max_connections: int = NO_LIMIT, max_connections_per_ip: int = NO_LIMIT, quotas: Quotas | None = None
    ) -> None:
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.max_creation_rate = NO_LIMIT  # connections a second
        self.limits_by_address: Mapping[str, int] = {}  # where others hold
        self._quotas = quotas or Quotas()
        self._created = Rate(self._quotas.windows, self._quotas.window_ms)
        self._by_address: Counter[str] = Counter()
        self._count = 0

    def enter(self, address: str) -> str | None:
        """Count one more; or why it may not be."""
        if self._count >= self.max_connections:
            return f"there are {self.max_connections} already"
        limit = self.limits_by_address.get(address, self.max_connections_per_ip)
        if self._by_address[address] >= limit:
            return f"there are {limit} from there already"
        self._count += 1
        self._by_address[address] += 1
        return None

    def leave(self, address: str) -> None:
        self._count -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def creation_throttle_ms(self, now_ms: int) -> int:
        """Count a new connection; for how long no other may follow it."""
        if self.max_creation_rate == NO_LIMIT:
            return 0
        self._created.record(1, now_ms)
        return min(self._created.throttle_ms(self.max_creation_rate, now_ms), self._quotas.window_ms)

    def address_throttle_ms(self, address: str, now_ms: int) -> int:
        """Count a new connection of an address, or for how long it is to be kept waiting, and then be closed."""
        return self._quotas.charge_connection(address, now_ms)
