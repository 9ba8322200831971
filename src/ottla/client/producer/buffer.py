"""Where callers of any thread put records, and the sender takes them: the one place that both sides touch."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable

from ottla.client.errors import BufferFull
from ottla.client.producer.chunk import Chunk


class Buffer:
    """Holds at most about `limit_bytes` that are not acknowledged. `lock` guards it and the chunks that are filled.

    What is counted is whole chunks, when they are closed: a caller who fills one does next to nothing.
    """

    def __init__(self, limit_bytes: int, chunk_bytes: int, *, stamps_each: bool = False) -> None:
        self.limit_bytes = limit_bytes
        self._chunk_bytes = chunk_bytes
        self._stamps_each = stamps_each
        self.lock = threading.Lock()
        self.filling: dict[str, Chunk] = {}
        """By topic, the chunk that was filled last. Its owner may go on with it, without the lock."""
        self._open: dict[tuple[str, int], Chunk] = {}
        """By topic and thread, all that may be filled."""
        self.used_bytes = 0
        self.notify: Callable[[], None] | None = None
        """Tells the sender that there is something to do; None while there is no sender."""
        self.refusal: Exception | None = None
        """Why nothing is taken at the moment."""
        self._closed: deque[Chunk] = deque()
        self._alive: dict[Chunk, None] = {}
        self._room = threading.Condition(self.lock)

    @property
    def has_room(self) -> bool:
        return self.used_bytes < self.limit_bytes

    def wait_for_room(self, timeout_seconds: float) -> None:
        """Blocks the calling thread."""
        with self._room:
            if not self._room.wait_for(lambda: self.has_room or self.refusal is not None, timeout_seconds):
                raise self.full()

    def full(self) -> BufferFull:
        return BufferFull(f"{self.used_bytes:,} bytes are not acknowledged yet, and {self.limit_bytes:,} is the limit")

    # For callers.

    def open(self, topic: str) -> Chunk | None:
        """A chunk to fill; None if there is no room for one."""
        with self.lock:
            if self.refusal is not None:
                raise self.refusal
            if self.notify is None:
                raise RuntimeError("the producer is not open: use it inside `with`")
            owner = threading.get_ident()
            chunk = self._open.get((topic, owner))
            if chunk is None and self.has_room:
                chunk = self._open[topic, owner] = Chunk(topic, self.lock, time.monotonic())
                chunk.owner = owner
                chunk.limit_bytes = self._chunk_bytes
                chunk.stamps_each = self._stamps_each
                chunk.timestamp_ms = time.time_ns() // 1_000_000
                self._keep(chunk)
                self.notify()
            if chunk is not None:
                self.filling[topic] = chunk
            return chunk

    def close(self, chunk: Chunk) -> None:
        """It is full. Somebody else may have found that, too."""
        with self.lock:
            if not chunk.is_closed:
                self._close(chunk)

    def _close(self, chunk: Chunk) -> None:
        del self._open[chunk.topic, chunk.owner]
        if self.filling.get(chunk.topic) is chunk:
            del self.filling[chunk.topic]
        chunk.close()
        self.used_bytes += chunk.size_bytes
        self._closed.append(chunk)
        assert self.notify is not None
        self.notify()

    def _keep(self, chunk: Chunk) -> None:
        self._alive[chunk] = None
        chunk.when_done.append(lambda: self._alive.pop(chunk, None))

    # For the sender.

    def admit(self, chunk: Chunk) -> None:
        """A chunk that came as a whole, behind what its topic has already."""
        with self.lock:
            if self.refusal is not None:
                raise self.refusal
            for (topic, _), filling in list(self._open.items()):
                if topic == chunk.topic:
                    self._close(filling)
            chunk.close()
            self.used_bytes += chunk.size_bytes
            self._keep(chunk)
            self._closed.append(chunk)
        assert self.notify is not None
        self.notify()

    def close_all(self) -> None:
        with self.lock:
            for chunk in list(self._open.values()):
                self._close(chunk)

    def collect(self, opened_before: float) -> tuple[list[Chunk], float | None]:
        """Closed chunks, in their order, and when the next one is due."""
        with self.lock:
            for chunk in [chunk for chunk in self._open.values() if chunk.opened_at <= opened_before]:
                self._close(chunk)
            collected = list(self._closed)
            self._closed.clear()
            next_opened = min((chunk.opened_at for chunk in self._open.values()), default=None)
        return collected, next_opened

    def unsettled(self) -> list[Chunk]:
        with self.lock:
            return list(self._alive)

    def release(self, size_bytes: int) -> None:
        """So many bytes are acknowledged, or given up."""
        with self._room:
            self.used_bytes -= size_bytes
            if self.has_room:
                self._room.notify_all()

    def refuse(self, reason: Exception | None) -> None:
        """From now on nothing is taken; None: it is again."""
        with self._room:
            for chunk in list(self._open.values()):
                self._close(chunk)
            self.refusal = reason
            self._room.notify_all()


async def settled(chunk: Chunk) -> None:
    """When all records of the chunk are decided. On the sender's loop."""
    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    if chunk.call_when_done(finish):
        await done
