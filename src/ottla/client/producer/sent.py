"""A record on its way: what `send` gives back, to ask what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator

from ottla.client.loop_thread import OWN_THREAD
from ottla.client.producer.chunk import Chunk
from ottla.client.producer.delivery import Delivery


class Sent:
    """Await it, or ask for its `result`; either raises the error if it was not written.

    Inside are its chunk and its number in it: nothing is kept of it where nobody keeps it. Whoever makes one puts them
    there: a constructor would take twice as long, and `send` makes one for each record.
    """

    __slots__ = ("_chunk", "_index")
    _chunk: Chunk
    _index: int

    @property
    def is_done(self) -> bool:
        chunk, index = self._chunk, self._index
        if chunk.is_settled:
            return True
        with chunk.lock:
            return chunk.is_decided(index)

    def result(self, timeout_seconds: float | None = None) -> Delivery:
        """Blocks until it is written. Not for the event loop's thread, nor for callbacks: RuntimeError, await it."""
        chunk, index = self._chunk, self._index
        if chunk.sender_thread == threading.get_ident() and not self.is_done:
            raise RuntimeError(OWN_THREAD)
        decided = threading.Event()
        if chunk.call_when_decided(index, decided.set):
            try:
                is_decided = decided.wait(timeout_seconds)
            except BaseException:
                chunk.take_back_call(index, decided.set)
                raise
            if not is_decided:
                chunk.take_back_call(index, decided.set)
                raise TimeoutError(f"not acknowledged within {timeout_seconds:g} s; it is still being tried")
        return self._delivery()

    def __await__(self) -> Generator[object, None, Delivery]:
        chunk, index = self._chunk, self._index
        loop = asyncio.get_running_loop()
        decided = loop.create_future()

        def decide() -> None:
            if not decided.done():
                decided.set_result(None)

        def fire() -> None:
            with contextlib.suppress(RuntimeError):  # nobody waits on a loop that is closed
                loop.call_soon_threadsafe(decide)

        if chunk.call_when_decided(index, fire):
            try:
                yield from decided
            except BaseException:
                chunk.take_back_call(index, fire)
                raise
        return self._delivery()

    def _delivery(self) -> Delivery:
        chunk, index = self._chunk, self._index
        delivery = chunk.delivery(index)
        if delivery.error is not None:
            raise delivery.error.again()
        return delivery

    def __repr__(self) -> str:
        return f"<record {self._index} of those sent together to {self._chunk.topic}>"
