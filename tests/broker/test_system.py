"""How the real system waits for those who send one request at a time; test_loop.py has the rest."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from ottla.broker.loop.loop import Loop
from ottla.broker.loop.system import FEW_WAITS, READ, LinuxSystem

AWAKE_SECONDS = 0.001
NUMBER = 1_000_000  # of no file
LONG = 60.0


class Polls:
    """In place of epoll: each poll finds something after so many that do not, and takes so long."""

    def __init__(self, clock: list[float]) -> None:
        self._clock = clock
        self._empty = 0
        self._seconds = 0.0
        self.asked: list[float] = []

    def next_one(self, *, empty: int = 0, seconds: float = 0.0) -> None:
        self._empty, self._seconds = empty, seconds
        self.asked.clear()

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        self.asked.append(seconds)
        self._clock[0] += self._seconds
        if len(self.asked) <= self._empty and seconds == 0:
            return []
        return [(NUMBER, READ)]


class Waiting:
    def __init__(self, clock: list[float], busy_poll_seconds: float) -> None:
        self.system = LinuxSystem(busy_poll_seconds)
        self.system._callbacks[NUMBER] = lambda _events: None
        self.epoll, self.polls = self.system._epoll, Polls(clock)
        self.system._epoll = self.polls  # type: ignore[assignment]

    def wait(self, *, expected: bool = True, wait: float = LONG, empty: int = 0, seconds: float = 0.0) -> list[float]:
        """Wait for something that is ready after so many polls; how long each poll was asked to wait."""
        self.polls.next_one(empty=empty, seconds=seconds)
        if expected:
            self.system.expect_soon()
        assert [ready for _, ready in self.system.wait(wait)] == [READ]
        return list(self.polls.asked)

    def close(self) -> None:
        self.system._epoll = self.epoll
        self.system.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    return clock


@pytest.fixture
def waiting(clock: list[float]) -> Iterator[Waiting]:
    waiting = Waiting(clock, AWAKE_SECONDS)
    yield waiting
    waiting.close()


def test_after_short_waits_it_busy_polls_for_a_moment(waiting: Waiting) -> None:
    assert [waiting.wait() for _ in range(FEW_WAITS)] == [[LONG]] * FEW_WAITS
    assert waiting.wait() == [0]
    assert waiting.wait(empty=3, seconds=AWAKE_SECONDS / 10) == [0] * 4
    assert waiting.wait(expected=False) == [LONG]
    assert waiting.wait() == [0]


def test_when_that_was_for_nothing_it_sleeps_again(waiting: Waiting) -> None:
    for _ in range(FEW_WAITS):
        waiting.wait()
    assert waiting.wait(empty=100, seconds=AWAKE_SECONDS * 0.4) == [0, 0, 0, LONG]
    assert waiting.wait() == [LONG]


def test_a_long_wait_among_short_ones(waiting: Waiting) -> None:
    for _ in range(FEW_WAITS - 1):
        waiting.wait()
    waiting.wait(seconds=3 * AWAKE_SECONDS)
    assert [waiting.wait() for _ in range(FEW_WAITS)] == [[LONG]] * FEW_WAITS
    assert waiting.wait() == [0]


def test_what_is_not_to_wait_does_not(waiting: Waiting) -> None:
    for _ in range(2 * FEW_WAITS):
        assert waiting.wait(wait=0.0) == [0]
    assert waiting.wait() == [LONG]


def test_only_who_is_told_to_busy_polls(clock: list[float]) -> None:
    waiting = Waiting(clock, 0.0)
    assert [waiting.wait() for _ in range(2 * FEW_WAITS)] == [[LONG]] * 2 * FEW_WAITS
    waiting.close()
    loop = Loop()
    assert isinstance(loop.system, LinuxSystem)
    assert loop.system._busy_poll_seconds == 0.0
    loop.close()
