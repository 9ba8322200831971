"""Quotas: how many bytes a second a client may produce and fetch, how much of the broker's time it gets, how many
partitions it may create and delete, and how often an address may connect.

Rates are measured as Kafka measures them, over windows of time: by default eleven of a second. A client above its
quota is told how long to wait until its rate is within the quota again. Meanwhile nothing is read from its connection,
so that a client that does not wait is throttled, too. Creations and deletions are counted with a token bucket, which a
burst may empty.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Generic, NamedTuple, TypeVar

from ottla.controller.quotas import CLIENT_ID, IP, USER, Entity

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"
KINDS = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
ANONYMOUS = "ANONYMOUS"  # the user of every connection, for nobody logs in

WINDOWS = 11
WINDOW_MS = 1000
FORGOTTEN_AFTER_MS = 3_600_000
MOST_KNOWN = 5000  # rates, and buckets: names are cheap to invent, and may be long
MOST_IN_ROW = 100  # of those who share a quota
LONGEST_THROTTLE_MS = 2**31 - 1  # as a reply can tell it


class Rate:
    """An amount a second, over the last windows."""

    __slots__ = ("_count", "_window_ms", "_windows", "row", "total")

    def __init__(self, count: int = WINDOWS, window_ms: int = WINDOW_MS) -> None:
        self._count = count
        self._window_ms = window_ms
        self._windows: deque[list[float]] = deque()  # start in ms, amount
        self.total = 0.0
        self.row: dict[object, int] = {}  # who got nothing, the first to come first, and when they come again

    def record(self, amount: float, now_ms: int) -> None:
        self._forget(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self.total += amount

    @property
    def most_throttle_ms(self) -> int:
        return min(self._count * self._window_ms, LONGEST_THROTTLE_MS)

    def _forget(self, now_ms: int) -> None:
        windows = self._windows
        while windows and now_ms - windows[0][0] >= self._count * self._window_ms:
            self.total -= windows.popleft()[1]

    def span_ms(self, now_ms: int) -> float:
        """The time that the amount is spread over: never less than all windows but one."""
        self._forget(now_ms)
        elapsed = now_ms - self._windows[0][0] if self._windows else 0
        full = elapsed // self._window_ms
        return float(max(elapsed + max(self._count - 1 - full, 0) * self._window_ms, 1))

    def left(self, quota: float, now_ms: int) -> float:
        """How much more makes the rate `quota` a second."""
        return quota * self.span_ms(now_ms) / 1000 - self.total

    def ahead_of(self, asker: object, now_ms: int) -> int:
        """How many are before somebody in the row. Who has not come when it was time is in it no more."""
        ahead = 0
        for other, due_ms in list(self.row.items()):
            if other == asker:
                break
            if now_ms > due_ms + self._window_ms:
                del self.row[other]
            else:
                ahead += 1
        return ahead

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long to wait until the rate is down at `quota` a second."""
        span_ms = self.span_ms(now_ms)
        rate = self.total * 1000 / span_ms
        if rate <= quota:
            return 0
        if quota <= 0:
            return self.most_throttle_ms
        return round(min((rate - quota) / quota * span_ms, self.most_throttle_ms))


class TokenBucket:
    """Fills by so many tokens a second up to a burst. Taking more than there are leaves a debt."""

    __slots__ = ("_burst_seconds", "_filled_ms", "_tokens")

    def __init__(self, burst_seconds: float) -> None:
        self._burst_seconds = burst_seconds
        self._tokens: float | None = None  # full, whatever the quota will be
        self._filled_ms = 0

    def take(self, amount: float, quota: float, now_ms: int) -> None:
        self._fill(quota, now_ms)
        assert self._tokens is not None
        self._tokens -= amount

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long until the debt is paid, which may be years."""
        tokens = self._fill(quota, now_ms)
        return round(min(-tokens / quota * 1000, LONGEST_THROTTLE_MS)) if tokens < 0 else 0

    def _fill(self, quota: float, now_ms: int) -> float:
        most = quota * self._burst_seconds
        tokens = most if self._tokens is None else self._tokens + (now_ms - self._filled_ms) / 1000 * quota
        self._tokens = min(tokens, most)
        self._filled_ms = now_ms
        return self._tokens


K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """What was used of late, the oldest first: the rest is forgotten, also where there is too much of it."""

    def __init__(self) -> None:
        self._entries: dict[K, tuple[V, int]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def items(self) -> Iterator[tuple[K, V]]:
        for key, (value, _) in self._entries.items():
            yield key, value

    def use(self, key: K, now_ms: int, make: Callable[[], V]) -> V:
        entries = self._entries
        known = entries.pop(key, None)
        value = make() if known is None else known[0]
        entries[key] = value, now_ms
        if known is None:
            self._forget(now_ms)
        return value

    def _forget(self, now_ms: int) -> None:
        entries = self._entries
        while len(entries) > 1:
            oldest = next(iter(entries))
            if len(entries) <= MOST_KNOWN and now_ms - entries[oldest][1] <= FORGOTTEN_AFTER_MS:
                return
            del entries[oldest]


class _Quota(NamedTuple):
    """A limit, and who shares it: a user, a client id, both together, or an address."""

    limit: float
    sharers: Entity


class Turn(NamedTuple):
    """What a client gets that asks for something."""

    is_given: bool
    throttle_ms: int


FREE_TURN = Turn(True, 0)


class Quotas:
    """The quotas that are set, and the rates of those they hold for."""

    def __init__(
        self, windows: int = WINDOWS, window_ms: int = WINDOW_MS, *, mutation_burst_seconds: float = WINDOWS
    ) -> None:
        self.windows = windows
        self.window_ms = window_ms
        self._mutation_burst_seconds = mutation_burst_seconds
        self._limits: dict[Entity, dict[str, float]] = {}
        self.are_set = False  # whether there is any
        self._rates: Recent[tuple[str, Entity], Rate] = Recent()
        self._buckets: Recent[Entity, TokenBucket] = Recent()

    def set_limits(self, entity: Entity, limits: Mapping[str, float]) -> None:
        """Replace the quotas of an entity; where its name is None, of all that have none of their own."""
        if limits:
            self._limits[entity] = dict(limits)
        else:
            self._limits.pop(entity, None)
        self.are_set = bool(self._limits)

    def limit(self, kind: str, client: str, user: str = ANONYMOUS) -> float | None:
        quota = self._find(kind, client, user)
        return None if quota is None else quota.limit

    def _find(self, kind: str, client: str, user: str) -> _Quota | None:
        for entity, sharers in _entities(client, user):
            limit = self._limits.get(entity, {}).get(kind)
            if limit is not None:
                return _Quota(limit, sharers)
        return None

    def charge(self, kind: str, client: str, amount: float, now_ms: int, user: str = ANONYMOUS) -> int:
        """Count what a client used; for how long it must be throttled."""
        quota = self._find(kind, client, user)
        if quota is None:
            return 0
        rate = self._rate(kind, quota.sharers, now_ms)
        rate.record(amount, now_ms)
        return rate.throttle_ms(quota.limit, now_ms)

    def most_at_once(self, kind: str, client: str, now_ms: int, user: str = ANONYMOUS) -> float | None:
        """What one of those who share a quota may get in one turn; None without a quota.

        It is what they have left, from one window's worth to two: with more, others would wait long for their turn; of
        less, much could be a part of a batch, which its client throws away.
        """
        quota = self._find(kind, client, user)
        if quota is None:
            return None
        in_window = quota.limit * self.window_ms / 1000
        rate = self._rates.get((kind, quota.sharers))
        left = math.inf if rate is None else rate.left(quota.limit, now_ms)
        return min(max(left, in_window), 2 * in_window)

    def take_turn(
        self, kind: str, client: str, asker: object, amount: float, now_ms: int, user: str = ANONYMOUS
    ) -> Turn:
        """Give one of those who share a quota an amount, if they are within it, or nothing now.

        Those who got nothing stand in a row, and one window's worth is kept for each of them when they come again: else
        the quickest could get it all.
        """
        quota = self._find(kind, client, user)
        if quota is None:
            return FREE_TURN
        rate = self._rate(kind, quota.sharers, now_ms)
        throttle_ms = rate.throttle_ms(quota.limit, now_ms)
        kept = rate.ahead_of(asker, now_ms) * quota.limit * self.window_ms / 1000
        if not throttle_ms and kept > rate.left(quota.limit, now_ms):
            throttle_ms = self.window_ms
        if throttle_ms:
            if amount and (asker in rate.row or len(rate.row) < MOST_IN_ROW):
                rate.row[asker] = now_ms + throttle_ms
            return Turn(False, throttle_ms)
        rate.row.pop(asker, None)
        rate.record(amount, now_ms)
        return Turn(True, rate.throttle_ms(quota.limit, now_ms))

    def _rate(self, kind: str, sharers: Entity, now_ms: int) -> Rate:
        return self._rates.use((kind, sharers), now_ms, lambda: Rate(self.windows, self.window_ms))

    @property
    def known(self) -> int:
        """Of how many rates and buckets it knows."""
        return len(self._rates) + len(self._buckets)

    # Creating and deleting partitions

    def mutation_throttle_ms(self, client: str, now_ms: int, user: str = ANONYMOUS) -> int:
        """How long a client must wait before it may create or delete more."""
        quota = self._find(CONTROLLER_MUTATION_RATE, client, user)
        return 0 if quota is None else self._bucket(quota.sharers, now_ms).throttle_ms(quota.limit, now_ms)

    def charge_mutations(self, client: str, count: int, now_ms: int, user: str = ANONYMOUS) -> None:
        quota = self._find(CONTROLLER_MUTATION_RATE, client, user)
        if quota is not None:
            self._bucket(quota.sharers, now_ms).take(count, quota.limit, now_ms)

    def _bucket(self, sharers: Entity, now_ms: int) -> TokenBucket:
        return self._buckets.use(sharers, now_ms, lambda: TokenBucket(self._mutation_burst_seconds))

    # Connecting

    def charge_connection(self, address: str, now_ms: int) -> int:
        """Count a connection from an address; if it is one too many, it does not count, and is to wait for so long."""
        for name in (address, None):
            limit = self._limits.get(((IP, name),), {}).get(CONNECTION_CREATION_RATE)
            if limit is not None:
                rate = self._rate(CONNECTION_CREATION_RATE, ((IP, address),), now_ms)
                rate.record(1, now_ms)
                throttle_ms = min(rate.throttle_ms(limit, now_ms), self.window_ms)
                if throttle_ms:
                    rate.record(-1, now_ms)
                return throttle_ms
        return 0


def _entities(client: str, user: str) -> Iterator[tuple[Entity, Entity]]:
    """The quotas that may hold for a client, the most specific first, each with those who share it."""
    both: Entity = ((CLIENT_ID, client), (USER, user))
    yield both, both
    yield ((CLIENT_ID, None), (USER, user)), both
    yield ((USER, user),), ((USER, user),)
    yield ((CLIENT_ID, client), (USER, None)), both
    yield ((CLIENT_ID, None), (USER, None)), both
    yield ((USER, None),), ((USER, user),)
    yield ((CLIENT_ID, client),), ((CLIENT_ID, client),)
    yield ((CLIENT_ID, None),), ((CLIENT_ID, client),)


def client_entity(client: str | None) -> Entity:
    """A client id, or with None all of them."""
    return ((CLIENT_ID, client),)
