"""The thread of the blocking face: results come back, and an interrupt leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import warnings
from collections.abc import Iterator

import pytest

from ottla.client.loop_thread import LoopThread, _Call


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


async def double(number: int, *, and_add: int = 0) -> int:
    await asyncio.sleep(0)
    return 2 * number + and_add


async def fail() -> None:
    raise ZeroDivisionError


def test_results_and_errors_come_back(thread: LoopThread) -> None:
    assert thread.run(double, 2, and_add=1) == 5
    with pytest.raises(ZeroDivisionError):
        thread.run(fail)


def test_arguments_that_a_call_does_not_take_are_an_error_and_no_hang(thread: LoopThread) -> None:
    async def work(_one: int) -> None: ...

    with pytest.raises(TypeError, match="positional argument"):
        thread.run(work, 1, 2)  # type: ignore[call-arg]
    thread.run(work, 1)


def test_whoever_is_interrupted_takes_the_call_back(thread: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    is_waiting, is_cancelled = threading.Event(), threading.Event()

    async def wait() -> None:
        is_waiting.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    def interrupted(_call: object) -> None:
        assert is_waiting.wait(10)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(_Call, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            thread.run(wait)
    assert is_cancelled.wait(10)


def test_an_interrupt_before_the_call_leaves_no_coroutine_behind(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_arguments: object) -> None:
        raise KeyboardInterrupt

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with monkeypatch.context() as patch:
            patch.setattr(thread._running_loop(), "call_soon_threadsafe", interrupted)
            with pytest.raises(KeyboardInterrupt):
                thread.run(double, 1)
        gc.collect()
    assert [str(warning.message) for warning in warned] == []


def test_who_waits_when_it_is_closed_is_told() -> None:
    thread = LoopThread()
    is_waiting, told = threading.Event(), threading.Event()

    async def wait() -> None:
        is_waiting.set()
        await asyncio.sleep(60)

    def waiting() -> None:
        with pytest.raises(RuntimeError, match="closed"):
            thread.run(wait)
        told.set()

    other = threading.Thread(target=waiting)
    other.start()
    assert is_waiting.wait(10)
    thread.close()
    other.join(10)
    assert told.is_set()
    with pytest.raises(RuntimeError, match="closed"):
        thread.run(double, 1)
