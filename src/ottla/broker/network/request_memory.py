"""The memory of large requests that have come in part, or are under way, of all connections together.

A large request gets more memory as more of it comes. When there is no more, connections queue for it, and nothing is
read from them. The first in the queue gets memory above the bound, one at a time, so that its request always comes to
its end. While others wait, the connection of a client that sends the rest of its request too slowly is closed.

Requests of an ordinary size have one half of the memory, and a queue, for themselves, so that those who send very large
ones, or have too many under way, do not keep them waiting. Memory for all of such a request is counted at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.network.receive_buffers import ReceiveBuffers

MOST_BYTES = 512 << 20  # where the settings name no limit
ORDINARY_BYTES = 2 << 20  # twice what producers send at once, unless they are told to send more
UNCOUNTED_BYTES = 1 << 16  # a request of so much is not looked at
PATIENCE_SECONDS = 5.0
LEAST_RATE = 1 << 20  # bytes a second, that come of a request while others wait
LOOK_SECONDS = 1.0
TOO_SLOW = "its request came too slowly while there was no memory for others"


class Holder(Protocol):
    """A connection."""

    @property
    def is_stopped(self) -> bool: ...

    @property
    def received_bytes(self) -> int:
        """How much has come of its request."""

    def grow(self) -> None:
        """There is the memory that it has waited for."""

    def refuse(self, reason: str) -> None: ...


class Progress(NamedTuple):
    """How much of a request had come at some time."""

    seconds: float
    received_bytes: int


class RequestMemory:
    """What all connections share."""

    def __init__(self, loop: Loop, most_bytes: int = -1) -> None:
        """`most_bytes`: as `queued.max.request.bytes` has it."""
        most_bytes = most_bytes if most_bytes > 0 else MOST_BYTES
        self.is_scarce = False  # nothing is to be received that may have to be kept: asked with each `recv`
        self.ordinary = Pool(loop, most_bytes // 2, self._look_whether_scarce)
        self.large = Pool(loop, most_bytes - most_bytes // 2, self._look_whether_scarce)

    def pool_of(self, size_bytes: int) -> Pool:
        return self.ordinary if size_bytes <= ORDINARY_BYTES else self.large

    @property
    def held_bytes(self) -> int:
        return self.ordinary.held_bytes + self.large.held_bytes

    def _look_whether_scarce(self) -> None:
        self.is_scarce = self.large.is_scarce or self.ordinary.is_scarce


class Pool:
    def __init__(self, loop: Loop, most_bytes: int, scarceness_changed: Callable[[], None] = lambda: None) -> None:
        """`scarceness_changed`: called when `is_scarce` is another."""
        self._loop = loop
        self.most_bytes = most_bytes
        self.held_bytes = 0
        self.is_scarce = False
        self._scarceness_changed = scarceness_changed
        self._receiving: dict[Holder, Progress] = {}  # whose request comes, since it was last looked at
        self._waiting: dict[Holder, int] = {}  # and how much more each wants
        self._favoured: Holder | None = None  # who is let on though there is no more
        self._timer: Timer | None = None

    def take(self, holder: Holder, size_bytes: int, *, in_turn: bool = True) -> bool:
        """Whether there is so much more for a request; if not, its connection waits in the row (`in_turn`)."""
        if holder is self._favoured or (self.held_bytes + size_bytes <= self.most_bytes and not self._waiting):
            self._give(holder, size_bytes)
            return True
        if not in_turn:
            return False
        self._receiving.pop(holder, None)  # it is not its fault
        self._waiting[holder] = size_bytes
        self._let_on(holder)
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)
        return holder not in self._waiting

    def add(self, size_bytes: int) -> None:
        """Count what is there anyway."""
        self.held_bytes += size_bytes
        self._look_whether_scarce()

    def note(self, holder: Holder, size_bytes: int) -> None:
        """Count what has come of a request that is to go on later."""
        self._give(holder, size_bytes)

    def give_back(self, size_bytes: int) -> None:
        self.held_bytes -= size_bytes
        self._let_on()

    def received(self, holder: Holder) -> None:
        """Its request is whole, or its connection closed: it wants no more."""
        self._receiving.pop(holder, None)
        self._waiting.pop(holder, None)
        if holder is self._favoured:
            self._favoured = None
        self._let_on()

    def _give(self, holder: Holder, size_bytes: int) -> None:
        self.held_bytes += size_bytes
        if holder not in self._receiving:  # or it could gain time by asking for a little more each time
            self._receiving[holder] = Progress(self._loop.now(), holder.received_bytes)
        self._look_whether_scarce()

    def _let_on(self, asking: Holder | None = None) -> None:
        """Those who are first in the row, as far as there is memory, and one more. Who is asking is not called."""
        while self._waiting:
            first, size_bytes = next(iter(self._waiting.items()))
            if self.held_bytes + size_bytes > self.most_bytes:
                if self._favoured is not None:
                    break
                self._favoured = first
            del self._waiting[first]
            self._give(first, size_bytes)
            if first is not asking:
                first.grow()
        self._look_whether_scarce()

    def _look_whether_scarce(self) -> None:
        is_scarce = self.held_bytes >= self.most_bytes or bool(self._waiting)
        if is_scarce is not self.is_scarce:
            self.is_scarce = is_scarce
            self._scarceness_changed()

    def _look(self) -> None:
        """Give up requests that do not come on, while others wait."""
        self._timer = None
        now = self._loop.now()
        for holder, before in list(self._receiving.items()):
            if not self._waiting:
                return
            seconds = now - before.seconds
            if not holder.is_stopped:
                if seconds < PATIENCE_SECONDS:
                    continue
                if holder.received_bytes - before.received_bytes < seconds * LEAST_RATE:
                    holder.refuse(TOO_SLOW)
                    continue
            self._receiving[holder] = Progress(now, holder.received_bytes)
        if self._waiting:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)


class Share:
    """What one connection has of it."""

    __slots__ = ("_held_bytes", "_holder", "_memory", "_pool", "_received_bytes", "_wanted_bytes")

    def __init__(self, memory: RequestMemory, holder: Holder) -> None:
        self._memory = memory
        self._holder = holder
        self._pool = memory.large  # that the request counts in
        self._received_bytes = 0  # for the request that is received, and what came behind it
        self._wanted_bytes = 0  # more than that, which it waits for
        self._held_bytes = 0  # of requests under way

    def lent(self, buffers: ReceiveBuffers, size_bytes: int) -> memoryview | None:
        """A buffer for all of a request that begins, if there is memory for it."""
        pool = self._memory.pool_of(size_bytes)
        if self._received_bytes or not pool.take(self._holder, size_bytes, in_turn=False):
            return None
        self._pool, self._received_bytes = pool, size_bytes
        buffer = buffers.lend(size_bytes)
        if buffer is None:
            self.give_back()
        return buffer

    def has_room(self, count: int, size_bytes: int, request_bytes: int) -> bool:
        """Whether a request of which so much is there may have so much memory. If not, its connection waits for it."""
        pool = self._memory.pool_of(request_bytes)
        if pool is not self._pool:
            self.give_back()
            self._pool = pool
        there_bytes = count - self._received_bytes
        if there_bytes > 0:
            pool.add(there_bytes)
            self._received_bytes = count
        if pool is self._memory.ordinary:
            size_bytes = request_bytes  # who has memory for all does not wait for who has some and waits for more
        more_bytes = size_bytes - self._received_bytes
        if more_bytes <= 0:
            return True
        self._wanted_bytes = more_bytes
        if not pool.take(self._holder, more_bytes):
            return False
        self.grown()
        return True

    def keep(self, count: int) -> None:
        """So much is there, and no more is read now: who is let on would keep others waiting."""
        there_bytes = count - self._received_bytes
        if count > UNCOUNTED_BYTES and there_bytes > 0:
            if not self._received_bytes:
                self._pool = self._memory.large  # it may stay for long
            self._pool.note(self._holder, there_bytes)
            self._received_bytes += there_bytes

    def grown(self) -> None:
        """It has what it waited for."""
        self._received_bytes += self._wanted_bytes
        self._wanted_bytes = 0

    def received(self) -> tuple[Pool, int]:
        """A request is whole; what is to be given back when it was handled, and to whom."""
        received_bytes, self._received_bytes = self._received_bytes, 0
        if received_bytes:
            self._pool.received(self._holder)
        return self._pool, received_bytes

    def give_back(self) -> None:
        """There is nothing of a request after all."""
        pool, received_bytes = self.received()
        if received_bytes:
            pool.give_back(received_bytes)

    def hold(self, size_bytes: int) -> None:
        """A request is kept while it is under way."""
        self._held_bytes += size_bytes
        self._memory.large.add(size_bytes)

    def release(self) -> None:
        held_bytes, self._held_bytes = self._held_bytes, 0
        if held_bytes:
            self._memory.large.give_back(held_bytes)

    def close(self) -> None:
        self._wanted_bytes = 0
        self.give_back()
        self.release()
        del self._holder  # each has the other
