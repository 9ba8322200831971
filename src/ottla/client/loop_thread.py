"""A thread with an event loop of its own, for those who do not have one."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar, cast

_logger = logging.getLogger("ottla.client")


P = ParamSpec("P")
T = TypeVar("T")

OWN_THREAD = "this was called in the client's own thread, which would wait for itself: a callback must not block"
CLOSED = "this client is closed"
FORKED = "this client was made before the process forked, and its thread is in the parent: make one in the child"


class LoopThread:
    """Runs coroutines for other threads. It starts with the first of them, and never keeps the process alive.

    It ends with `close`; and when nobody has it any more, so that a client that was dropped leaves no thread.
    """

    def __init__(self) -> None:
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._closing = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()
        self.is_closed = False

    def run(self, work: Callable[P, Coroutine[Any, Any, T]], *arguments: P.args, **options: P.kwargs) -> T:
        """The result of calling `work` in the thread. Whoever is interrupted while waiting takes it back, and goes on
        when it has ended.

        The coroutine is made in the thread: an interrupt, which comes at any moment, finds none that nobody awaits.
        """
        if self._process_id != os.getpid():  # before the lock, which a thread of the parent may have had
            raise RuntimeError(CLOSED if self.is_closed else FORKED)
        call = _Call(partial(work, *arguments, **options))
        is_given = False
        try:
            with self._lock:  # what comes in here comes before the end
                loop = self._running_loop()
                is_given = True
                loop.call_soon_threadsafe(call.begin)
            return call.result()
        except BaseException:
            if is_given and not call.is_done:
                self.call(call.take_back)
                call.wait()  # until another interrupt
            raise

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Runs a plain function in the thread, some time soon, if it runs at all."""
        if self._loop is not None and not self._loop.is_closed() and self._process_id == os.getpid():
            self._loop.call_soon_threadsafe(function, *arguments)

    def close(self) -> None:
        """Whoever comes while another closes it waits for that."""
        if not self.is_here:
            self.is_closed = True
            return
        self.check_other_thread()
        with self._closing:
            with self._lock:
                self.is_closed, was_closed = True, self.is_closed
            if was_closed:
                return
            assert self._thread is not None
            assert self._loop is not None
            try:
                call = _Call(_cancel_others)
                self._loop.call_soon_threadsafe(call.begin)
                call.result()
            finally:
                self._is_over.set()
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()

    def check_other_thread(self) -> None:
        if self.is_current:
            raise RuntimeError(OWN_THREAD)

    @property
    def is_current(self) -> bool:
        """Whether this is called in the thread itself."""
        return threading.current_thread() is self._thread

    @property
    def is_here(self) -> bool:
        """Whether it has run anything, in this process."""
        return self._loop is not None and self._process_id == os.getpid()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self.is_closed:
            raise RuntimeError(CLOSED)
        self.check_other_thread()
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            served = self._loop, self._is_over
            self._thread = threading.Thread(target=_serve, args=served, name="ottla-client", daemon=True)
            self._thread.start()
            weakref.finalize(self, _end, *served).atexit = False
        return self._loop


def _serve(loop: asyncio.AbstractEventLoop, is_over: threading.Event) -> None:
    """Until it is stopped: a callback that calls sys.exit would leave all those waiting whom the thread serves."""
    try:
        while not is_over.is_set():
            try:
                loop.run_forever()
            except BaseException:
                _logger.exception("a callback wanted to end the client's thread, which goes on")
    finally:
        loop.close()


def _end(loop: asyncio.AbstractEventLoop, is_over: threading.Event) -> None:
    """Nobody has the thread any more."""

    def stop(_: object) -> None:
        is_over.set()
        loop.stop()

    def cancel() -> None:
        asyncio.ensure_future(_cancel_others()).add_done_callback(stop)

    if not loop.is_closed():
        loop.call_soon_threadsafe(cancel)


class _Call(Generic[T]):
    """One coroutine on its way through the thread. A lock tells that it is over: the futures of the standard library
    would cost more than all else here."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self._is_running = threading.Lock()
        self._is_running.acquire()
        self._error: BaseException | None = None
        self._value: T | None = None
        self.is_done = False

    # For who waits.

    def wait(self) -> None:
        with self._is_running:
            pass

    def result(self) -> T:
        self.wait()
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
            return cast("T", self._value)
        finally:
            del error  # its traceback has this frame

    # In the thread.

    def begin(self) -> None:
        if self.is_done:
            return  # it was taken back before
        try:
            work = self._work()
        except Exception as error:  # it does not take these arguments
            self._end(error)
        else:
            self._task = asyncio.ensure_future(work)
            self._task.add_done_callback(self._done)

    def take_back(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.is_done:
            self._end(None)

    def _done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self._end(RuntimeError(CLOSED))  # by who closes the thread; who has taken it back does not ask
        elif (error := task.exception()) is not None:
            self._end(error)
        else:
            self._value = task.result()
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self.is_done = True
        self._is_running.release()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0)  # connections that they ended are closed by the loop, in its next round
    await asyncio.get_running_loop().shutdown_asyncgens()
