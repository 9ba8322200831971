"""The memory of large requests that have come in part, or are under way, of all connections together.

A large request gets more memory as more of it comes. When there is no more, connections queue for it, and nothing is
read from them. The first in the queue gets memory above the bound, one at a time, so that its request always comes to
its end. While others wait, the connection of a client that sends the rest of its request too slowly is closed.
"""

from __future__ import annotations

from typing import Protocol

from ottla.broker.loop.loop import Loop, Timer

MOST_BYTES = 512 << 20  # where the settings name no limit
UNCOUNTED_BYTES = 1 << 16  # a request of so much is not looked at
PATIENCE_SECONDS = 5.0
LEAST_RATE = 1 << 20  # bytes a second, that come of a request while others wait
LOOK_SECONDS = 1.0
TOO_SLOW = "its request came too slowly while there was no memory for others"


class Holder(Protocol):
    """A connection."""

    @property
    def is_stopped(self) -> bool: ...

    def grow(self) -> None:
        """There is the memory that it has waited for."""

    def refuse(self, reason: str) -> None: ...


class RequestMemory:
    def __init__(self, loop: Loop, most_bytes: int = -1) -> None:
        """`most_bytes`: as `queued.max.request.bytes` has it."""
        self._loop = loop
        self.most_bytes = most_bytes if most_bytes > 0 else MOST_BYTES
        self.held_bytes = 0
        self._receiving: dict[Holder, float] = {}  # and until when others wait for each
        self._waiting: dict[Holder, int] = {}  # and how much more each wants
        self._favoured: Holder | None = None  # who is let on though there is no more
        self._timer: Timer | None = None

    @property
    def is_scarce(self) -> bool:
        """Whether nothing is to be received that may have to be kept."""
        return self.held_bytes >= self.most_bytes or bool(self._waiting)

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
        self._receiving.pop(holder, None)
        self._receiving[holder] = self._loop.now() + PATIENCE_SECONDS + size_bytes / LEAST_RATE

    def _let_on(self, asking: Holder | None = None) -> None:
        """Those who are first in the row, as far as there is memory, and one more. Who is asking is not called."""
        while self._waiting:
            first, size_bytes = next(iter(self._waiting.items()))
            if self.held_bytes + size_bytes > self.most_bytes:
                if self._favoured is not None:
                    return
                self._favoured = first
            del self._waiting[first]
            self._give(first, size_bytes)
            if first is not asking:
                first.grow()

    def _look(self) -> None:
        """Give up requests that do not come on, while others wait."""
        self._timer = None
        now = self._loop.now()
        for holder, until in list(self._receiving.items()):
            if not self._waiting:
                return
            if holder.is_stopped:
                self._receiving[holder] = max(until, now + PATIENCE_SECONDS)
            elif until < now:
                holder.refuse(TOO_SLOW)
        if self._waiting:
            self._timer = self._loop.call_later(LOOK_SECONDS, self._look)


class Share:
    """What one connection has of it."""

    __slots__ = ("_held_bytes", "_holder", "_memory", "_received_bytes", "_wanted_bytes")

    def __init__(self, memory: RequestMemory, holder: Holder) -> None:
        self._memory = memory
        self._holder = holder
        self._received_bytes = 0  # for the request that is received, and what came behind it
        self._wanted_bytes = 0  # more than that, which it waits for
        self._held_bytes = 0  # of requests under way

    def may_lend(self, size_bytes: int) -> bool:
        """Whether there is memory for all of a request that begins."""
        if self._received_bytes or not self._memory.take(self._holder, size_bytes, in_turn=False):
            return False
        self._received_bytes = size_bytes
        return True

    def has_room(self, count: int, size_bytes: int) -> bool:
        """Whether a request of which so much is there may have so much memory. If not, its connection waits for it."""
        there_bytes = count - self._received_bytes
        if there_bytes > 0:
            self._memory.add(there_bytes)
            self._received_bytes = count
        more_bytes = size_bytes - self._received_bytes
        if more_bytes <= 0:
            return True
        self._wanted_bytes = more_bytes
        if not self._memory.take(self._holder, more_bytes):
            return False
        self.grown()
        return True

    def keep(self, count: int) -> None:
        """So much of a request is there, and no more of it is read now: who is let on would keep others waiting."""
        there_bytes = count - self._received_bytes
        if count > UNCOUNTED_BYTES and there_bytes > 0:
            self._memory.note(self._holder, there_bytes)
            self._received_bytes += there_bytes

    def grown(self) -> None:
        """It has what it waited for."""
        self._received_bytes += self._wanted_bytes
        self._wanted_bytes = 0

    def received(self) -> int:
        """A request is whole; what is to be given back when it was handled."""
        received_bytes, self._received_bytes = self._received_bytes, 0
        if received_bytes:
            self._memory.received(self._holder)
        return received_bytes

    def hold(self, size_bytes: int) -> None:
        """A request is kept while it is under way."""
        self._held_bytes += size_bytes
        self._memory.add(size_bytes)

    def release(self) -> None:
        held_bytes, self._held_bytes = self._held_bytes, 0
        if held_bytes:
            self._memory.give_back(held_bytes)

    def close(self) -> None:
        received_bytes, self._received_bytes, self._wanted_bytes = self._received_bytes, 0, 0
        self._memory.received(self._holder)
        self._memory.give_back(received_bytes)
        self.release()
        del self._holder  # each has the other
