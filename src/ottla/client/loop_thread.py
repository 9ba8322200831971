"""A thread with an event loop of its own, for those who do not have one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads. It ends with `close`, and never keeps the process alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-client", daemon=True)
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def run(self, work: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """The result of calling `work` in the thread. Whoever is interrupted while waiting takes it back.

        The coroutine is made in the thread: an interrupt, which comes at any moment, finds none that nobody awaits.
        """
        if self.is_closed:
            raise RuntimeError("this client is closed")
        call = _Call(partial(work, *arguments, **options))
        try:
            self._loop.call_soon_threadsafe(call.begin)
            return call.result.result()
        except BaseException:
            if not call.result.done():
                self.call(call.take_back)
            raise

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Runs a plain function in the thread, some time soon."""
        if not self.is_closed:
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        if self.is_closed:
            return
        self.run(_cancel_others)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _Call(Generic[T]):
    """One coroutine on its way through the thread."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.result: Future[T] = Future()

    def begin(self) -> None:
        if self.result.set_running_or_notify_cancel():
            self._task = asyncio.ensure_future(self._work())
            self._task.add_done_callback(self._done)

    def take_back(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.result.set_exception(CancelledError())
        elif (error := task.exception()) is not None:
            self.result.set_exception(error)
        else:
            self.result.set_result(task.result())


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()
