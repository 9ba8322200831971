"""Client quotas: how many bytes a second a client id may produce and fetch, and how much of the broker's time it gets.

Rates are measured as Kafka measures them, over windows of time: by default eleven of a second. Who goes over its quota
is told to wait for as long as brings the rate back under it, and is not read from meanwhile, so that it obeys even if
it does not listen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
KINDS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
DEFAULT_CLIENT = "<default>"

WINDOWS = 11
WINDOW_MS = 1000
FORGOTTEN_AFTER_MS = 3_600_000


class Rate:
    """An amount a second, over the last windows."""

    __slots__ = ("_count", "_window_ms", "_windows", "total")

    def __init__(self, count: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._count = count
        self._window_ms = window_ms
        self._windows: deque[list[float]] = deque()  # start in ms, amount
        self.total = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        self._forget(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self.total += amount

    @property
    def most_throttle_ms(self) -> int:
        return self._count * self._window_ms

    def _forget(self, now_ms: int) -> None:
        windows = self._windows
        while windows and now_ms - windows[0][0] >= self.most_throttle_ms:
            self.total -= windows.popleft()[1]

    def span_ms(self, now_ms: int) -> float:
        """The time that the amount is spread over: never less than all windows but one."""
        self._forget(now_ms)
        elapsed = now_ms - self._windows[0][0] if self._windows else 0
        full = elapsed // self._window_ms
        return float(max(elapsed + max(self._count - 1 - full, 0) * self._window_ms, 1))

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long to wait until the rate is down at `quota` a second."""
        span_ms = self.span_ms(now_ms)
        rate = self.total * 1000 / span_ms
        if rate <= quota:
            return 0
        if quota <= 0:
            return self.most_throttle_ms
        return min(round((rate - quota) / quota * span_ms), self.most_throttle_ms)


class Quotas:
    """The quotas that are set, by client id, and the rates of the clients they hold for."""

    def __init__(self, windows: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._windows = windows
        self._window_ms = window_ms
        self._limits: dict[str, dict[str, float]] = {}
        self._rates: dict[tuple[str, str], Rate] = {}
        self._used_ms: dict[tuple[str, str], int] = {}

    @property
    def are_set(self) -> bool:
        return bool(self._limits)

    def set_limits(self, client: str, limits: Mapping[str, float]) -> None:
        """Replace the quotas of a client id, or of `DEFAULT_CLIENT` for those that have none of their own."""
        if limits:
            self._limits[client] = dict(limits)
        else:
            self._limits.pop(client, None)

    def clients(self) -> list[str]:
        return list(self._limits)

    def limit(self, kind: str, client: str) -> float | None:
        for name in (client, DEFAULT_CLIENT):
            limit = self._limits.get(name, {}).get(kind)
            if limit is not None:
                return limit
        return None

    def charge(self, kind: str, client: str, amount: float, now_ms: int) -> int:
        """Count what a client used; for how long it must be throttled."""
        limit = self.limit(kind, client)
        if limit is None:
            return 0
        rate = self._rates.get((kind, client))
        if rate is None:
            self._forget_idle(now_ms)
            rate = self._rates[kind, client] = Rate(self._windows, self._window_ms)
        self._used_ms[kind, client] = now_ms
        rate.record(amount, now_ms)
        return rate.throttle_ms(limit, now_ms)

    def refund(self, kind: str, client: str, amount: float, now_ms: int) -> None:
        """Take back what was counted and then not given."""
        rate = self._rates.get((kind, client))
        if rate is not None:
            rate.record(-amount, now_ms)

    def _forget_idle(self, now_ms: int) -> None:
        for key in [key for key, used_ms in self._used_ms.items() if now_ms - used_ms > FORGOTTEN_AFTER_MS]:
            del self._rates[key], self._used_ms[key]
