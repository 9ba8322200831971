"""Where callers of any thread put records, and the sender takes them: the one place that both sides touch."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable

from ottla.client.errors import BufferFull, ClientError
from ottla.client.loop_thread import FORKED
from ottla.client.producer.chunk import Chunk

_logger = logging.getLogger("ottla.client")
_buffers: weakref.WeakSet[Buffer] = weakref.WeakSet()
"""Of producers that are, or were, open."""


class Buffer:
    """Holds at most about `limit_bytes` that are not acknowledged. `lock` guards it and the chunks that are filled.

    Whole chunks are counted, when they are closed, so that adding a record costs next to nothing.
    """

    def __init__(
        self, limit_bytes: int, chunk_bytes: int, *, stamps_each: bool = False,
        largest_record_bytes: int = 100 << 20,
    ) -> None:  # fmt: skip
        self.limit_bytes = limit_bytes
        self.largest_record_bytes = largest_record_bytes
        self._chunk_bytes = chunk_bytes
        self._stamps_each = stamps_each
        self.lock = threading.Lock()
        self.filling: dict[str, Chunk] = {}
        """By topic, the chunk that is being filled. Its owner fills it without the lock. When another thread sends to
        the topic, the chunk is closed, so that records stay in the order of the calls."""
        self.used_bytes = 0
        self._notify: Callable[[], None] | None = None
        """Tells the sender that there is something to do; None while there is no sender."""
        self.sender_thread = 0
        """Where the sender runs, once there is one."""
        self.refusal: Exception | None = None
        """Why nothing is taken at the moment."""
        self._closed: deque[Chunk] = deque()
        self._alive: dict[Chunk, None] = {}
        self._room = threading.Condition(self.lock)
        self._wanting: list[Callable[[], object]] = []
        """To be called, in the sender's thread, when there is room."""
        _buffers.add(self)

    def begin(self, notify: Callable[[], None]) -> None:
        """There is a sender, on this thread: `notify` tells it, from any thread, that there is something to do."""
        self.sender_thread = threading.get_ident()
        self._notify = notify

    @property
    def has_room(self) -> bool:
        return self.used_bytes < self.limit_bytes

    def wait_for_room(self, timeout_seconds: float) -> None:
        """Blocks the calling thread."""
        with self._room:
            if not self._room.wait_for(lambda: self.has_room or self.refusal is not None, timeout_seconds):
                raise self.full()

    def call_when_roomy(self, fire: Callable[[], object]) -> bool:
        """False, and no call will come, if there is room already, or nothing is taken at all."""
        with self.lock:
            if self.has_room or self.refusal is not None:
                return False
            self._wanting.append(fire)
            return True

    def full(self) -> BufferFull:
        return BufferFull(f"{self.used_bytes:,} bytes are not acknowledged yet, and {self.limit_bytes:,} is the limit")

    # For callers.

    def open(self, topic: str) -> Chunk | None:
        """A chunk to fill; None if there is no room for one."""
        with self.lock:
            if self.refusal is not None:
                raise _again(self.refusal)
            if self._notify is None:
                raise RuntimeError("the producer is not open: use it inside `with`, or call open()")
            owner = threading.get_ident()
            chunk = self.filling.get(topic)
            if chunk is not None and (chunk.owner != owner or chunk.is_closed):
                self._close(chunk)
                chunk = None
            if chunk is None and self.has_room:
                chunk = Chunk(topic, self.lock, time.monotonic())
                chunk.owner = owner
                # Open chunks are not counted, so with many topics each of them must be smaller.
                chunk.limit_bytes = min(self._chunk_bytes, self.limit_bytes // (2 * (len(self.filling) + 1)))
                chunk.stamps_each = self._stamps_each
                chunk.timestamp_ms = time.time_ns() // 1_000_000
                self.filling[topic] = chunk
                self._keep(chunk)
                self._notify()
            return chunk

    def close(self, chunk: Chunk) -> None:
        """It is full. Another thread may have closed it already."""
        with self.lock:
            if not chunk.is_closed:
                self._close(chunk)

    def _close(self, chunk: Chunk) -> None:
        """A Ctrl-C may interrupt it anywhere, in the thread that sends. Then whoever comes next does the rest: until
        the end the chunk is among those that are being filled."""
        if not chunk.is_counted:
            chunk.close()
        if not chunk.count:  # nothing came in before it was closed
            self._alive.pop(chunk, None)
        elif chunk not in self._closed:
            self._closed.append(chunk)
            self.used_bytes += chunk.size_bytes
        self.filling.pop(chunk.topic, None)
        assert self._notify is not None
        self._notify()

    def _keep(self, chunk: Chunk) -> None:
        self._alive[chunk] = None
        chunk.sender_thread = self.sender_thread
        chunk.when_done.append(lambda: self._alive.pop(chunk, None))

    # For the sender.

    def admit(self, chunk: Chunk) -> None:
        """A chunk that came as a whole, behind what its topic has already."""
        with self.lock:
            if self.refusal is not None:
                raise _again(self.refusal)
            if self._notify is None:
                raise RuntimeError("the producer is not open: use it inside `with`, or call open()")
            if (filling := self.filling.get(chunk.topic)) is not None:
                self._close(filling)
            chunk.close()
            self.used_bytes += chunk.size_bytes
            self._keep(chunk)
            self._closed.append(chunk)
            self._notify()

    def close_all(self) -> None:
        with self.lock:
            for chunk in list(self.filling.values()):
                self._close(chunk)

    def collect(self, opened_before: float) -> tuple[list[Chunk], float | None]:
        """Closed chunks, in their order, and when the next one is due."""
        with self.lock:
            for chunk in [chunk for chunk in self.filling.values() if chunk.opened_at <= opened_before]:
                self._close(chunk)
            collected = list(self._closed)
            for chunk in collected:
                if self.filling.get(chunk.topic) is chunk:  # whoever closed it was interrupted
                    del self.filling[chunk.topic]
            self._closed.clear()
            next_opened = min((chunk.opened_at for chunk in self.filling.values()), default=None)
        return collected, next_opened

    def unsettled(self) -> list[Chunk]:
        with self.lock:
            return list(self._alive)

    def count_unsettled(self) -> int:
        """How many records are not decided."""
        with self.lock:
            return sum(chunk.undecided if chunk.is_closed else len(chunk.records) for chunk in self._alive)

    def forget_parent(self) -> None:
        """In a child of the process: the thread that sends is the parent's, and so are the records."""
        self.lock = threading.Lock()
        self._room = threading.Condition(self.lock)
        self.refusal = RuntimeError(FORKED)
        self.filling.clear()
        for chunk in self._alive:
            chunk.lock = self.lock
            chunk.is_closed = chunk.is_counted = True
            chunk.count = len(chunk.records) or len(chunk.values)
            chunk.error = ClientError(FORKED)
        self._alive.clear()

    def release(self, size_bytes: int) -> None:
        """So many bytes are acknowledged, or given up."""
        with self._room:
            self.used_bytes -= size_bytes
            if not self.has_room:
                return
            self._room.notify_all()
            wanting, self._wanting = self._wanting, []
        for fire in wanting:
            fire()

    def refuse(self, reason: Exception | None) -> None:
        """From now on nothing is taken; None: it is again."""
        with self._room:
            for chunk in list(self.filling.values()):
                self._close(chunk)
            self.refusal = reason
            self._room.notify_all()
            wanting, self._wanting = self._wanting, []
        for fire in wanting:
            fire()


def _again(refusal: Exception) -> Exception:
    """A new object for each caller, so that no traceback is shared."""
    return refusal.again() if isinstance(refusal, ClientError) else type(refusal)(*refusal.args)


async def settled(chunk: Chunk) -> None:
    """When all records of the chunk are decided. On the sender's loop."""
    await _called(chunk.call_when_done)


async def roomy(buffer: Buffer) -> None:
    """When there is room, or nothing is taken. On the sender's loop."""
    while not buffer.has_room and buffer.refusal is None:
        await _called(buffer.call_when_roomy)


async def _called(call: Callable[[Callable[[], object]], bool]) -> None:
    """When a function is called, if it will be."""
    done = asyncio.get_running_loop().create_future()

    def finish() -> None:
        if not done.done():
            done.set_result(None)

    if call(finish):
        await done


def _forget_parent() -> None:
    for buffer in list(_buffers):
        buffer.forget_parent()


def _warn_at_exit() -> None:
    for buffer in list(_buffers):
        if count := buffer.count_unsettled():
            _logger.warning("the program ends, and %d records were not sent: close the producer, or flush it", count)


os.register_at_fork(after_in_child=_forget_parent)
atexit.register(_warn_at_exit)
