"""The loop: timers, calls from threads, blocking jobs, background steps."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from functools import partial

import pytest

from ottla.broker.loop.loop import READ, Loop
from ottla.broker.loop.system import LinuxSystem, ReadyCallback


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def test_timers_fire_in_the_order_of_their_time(loop: Loop) -> None:
    fired: list[str] = []
    loop.call_later(0.02, lambda: (fired.append("late"), loop.stop())[0])  # type: ignore[func-returns-value]
    loop.call_later(0.01, lambda: fired.append("middle"))
    loop.call_later(0.0, lambda: fired.append("soon"))
    loop.run()
    assert fired == ["soon", "middle", "late"]


@pytest.mark.parametrize("count", [0, 3])
def test_jobs_can_be_waited_for(loop: Loop, count: int) -> None:
    may_run = threading.Event()
    ran: list[int] = []
    done: list[Exception | None] = []

    def job(number: int) -> None:
        may_run.wait(10)
        ran.append(number)

    for number in range(count):
        loop.run_blocking(partial(job, number), done.append)
    may_run.set()
    loop.finish_jobs()
    assert ran == list(range(count))
    assert done == []  # that is for the loop to tell, when it comes round


def test_nobody_waits_for_a_job_that_takes_very_long() -> None:
    loop = Loop()
    may_end, done = threading.Event(), list[str]()

    def slow() -> None:
        may_end.wait()

    loop.run_slow(slow, lambda _failure: done.append("slow"))
    loop.run_blocking(lambda: None, lambda _failure: done.append("other"))
    loop.run_until(lambda: bool(done))
    assert done == ["other"]
    may_end.set()
    loop.finish_jobs()
    loop.run_once()
    assert done == ["other", "slow"]
    loop.close()


def test_what_is_for_an_idle_moment_waits_for_those_who_come_together(loop: Loop) -> None:
    done: list[str] = []
    pairs = [socket.socketpair() for _ in range(3)]

    def read(reading: socket.socket, _events: int) -> None:
        if reading.recv(1) == b"z":
            loop.forget(reading)
        done.append("ready")
        if done == ["ready"]:
            loop.call_when_idle(lambda: done.append("idle"), 60)

    for (reading, writing), data in zip(pairs, (b"z", b"az", b"abz"), strict=True):
        writing.send(data)
        loop.watch(reading, READ, partial(read, reading))
    for _ in range(3):  # in the third only one is ready, and nobody else is to be waited for
        assert "idle" not in done
        loop.run_once()
    assert done == ["ready"] * 6 + ["idle"]
    for pair in pairs:
        for end in pair:
            end.close()


def test_what_is_for_an_idle_moment_does_not_wait_for_ever(loop: Loop) -> None:
    done: list[str] = []
    pairs = [socket.socketpair() for _ in range(2)]
    for reading, writing in pairs:
        writing.send(b"z")
        loop.watch(reading, READ, lambda _events: done.append("ready"))  # and stays so
    loop.call_when_idle(lambda: done.append("idle"), 0.01)
    while "idle" not in done:
        loop.run_once()
    assert done.count("ready") > 2
    for pair in pairs:
        for end in pair:
            end.close()


def test_a_cancelled_timer_does_not_fire(loop: Loop) -> None:
    fired: list[str] = []
    loop.call_later(0.0, lambda: fired.append("no")).cancel()
    loop.call_later(0.005, loop.stop)
    loop.run()
    assert fired == []


def test_cancelled_timers_do_not_stay_until_they_are_due(loop: Loop) -> None:
    fired: list[str] = []
    loop.call_later(0.001, lambda: fired.append("kept"))
    for _ in range(10_000):
        timer = loop.call_later(1_000_000, lambda: fired.append("cancelled"))
        timer.cancel()
        timer.cancel()
    assert len(loop._timers) < 2000
    while not fired:
        loop.run_once()
    assert fired == ["kept"]


def test_a_call_from_another_thread_wakes_the_loop(loop: Loop) -> None:
    threads: list[int] = []

    def call() -> None:
        threads.append(threading.get_ident())
        loop.stop()

    threading.Timer(0.01, loop.post, [call]).start()
    loop.run()
    assert threads == [threading.get_ident()]


def test_a_blocking_job_runs_elsewhere_and_its_end_comes_back_here(loop: Loop) -> None:
    ran_in: list[int] = []
    ended: list[tuple[int, Exception | None]] = []

    def fail() -> None:
        raise OSError("the disk is broken")

    def done(failure: Exception | None) -> None:
        ended.append((threading.get_ident(), failure))
        if len(ended) == 2:
            loop.stop()

    loop.run_blocking(lambda: ran_in.append(threading.get_ident()), done)
    loop.run_blocking(fail, done)
    loop.run()
    here = threading.get_ident()
    assert ran_in != [here]
    assert [thread for thread, _ in ended] == [here, here]
    assert ended[0][1] is None
    assert isinstance(ended[1][1], OSError)


def test_background_steps_run_between_events_until_there_are_none(loop: Loop) -> None:
    steps = iter([True, True, False])
    taken: list[bool] = []

    def step() -> bool:
        taken.append(next(steps))
        return taken[-1]

    loop.set_background(step)
    loop.call_later(0.01, loop.stop)
    loop.run()
    assert taken == [True, True, False]


def test_calls_made_soon_from_a_call_made_soon_wait_for_the_next_round(loop: Loop) -> None:
    order: list[str] = []

    def first() -> None:
        loop.call_soon(lambda: (order.append("second"), loop.stop())[0])  # type: ignore[func-returns-value]
        order.append("first")

    loop.call_soon(first)
    loop.run_once()
    assert order == ["first"]
    loop.run()
    assert order == ["first", "second"]


def test_a_socket_that_is_ready_is_called(loop: Loop) -> None:
    import socket

    left, right = socket.socketpair()
    with left, right:
        events: list[int] = []
        loop.watch(left, READ, lambda ready: (events.append(ready), loop.stop())[0])  # type: ignore[func-returns-value]
        right.send(b"x")
        loop.run()
        loop.forget(left)
    assert events == [READ]


def test_a_callback_that_fails_does_not_end_the_loop(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("a mistake")

    loop.call_soon(fail)
    loop.call_later(0.0, fail)
    loop.call_later(0.005, loop.stop)
    loop.run()
    assert [record.getMessage() for record in caplog.records] == ["a callback failed"] * 2


class SlowRounds(LinuxSystem):
    """Many are ready at once, and each takes five milliseconds by this clock."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self.seconds = 0.0
        self.now = lambda: self.seconds
        self._calls = calls
        self.waits = 0

    def wait(self, seconds: float) -> list[tuple[ReadyCallback, int]]:
        self.waits += 1
        return [(partial(self._serve, number), READ) for number in range(10)] if self.waits == 1 else []

    def _serve(self, number: int, _events: int) -> None:
        self.seconds += 0.005
        self._calls.append(f"client {number}")


def test_when_very_many_are_ready_others_have_their_turn_in_between() -> None:
    calls: list[str] = []
    system = SlowRounds(calls)
    loop = Loop(system)
    loop.call_later(0.001, lambda: calls.append("timer"))
    loop.call_soon(lambda: calls.append("soon"))
    for _ in range(5):
        loop.run_once()
    clients = [f"client {number}" for number in range(10)]
    assert calls == [*clients[:2], "soon", "timer", *clients[2:]]
    assert system.waits == 1  # who waits for the socket of one that is still to be served would be told of it again
    assert loop.longest_round.ever < 0.011
    loop.close()


@pytest.mark.parametrize("kind", ["soon", "timer"])
def test_when_very_much_is_to_be_called_others_have_their_turn_in_between(kind: str) -> None:
    """As when hundreds of clients go on with what they sent, or the sessions of thousands of members end at once."""
    calls: list[str] = []
    system = SlowRounds(calls)
    system.waits = 1  # nobody is ready
    loop = Loop(system)

    def call(number: int) -> None:
        system.seconds += 0.006
        calls.append(f"{kind} {number}")

    for number in range(20):
        due = partial(call, number)
        loop.call_soon(due) if kind == "soon" else loop.call_at(number / 1e6, due)
    for _ in range(20):
        loop.call_last(lambda: calls.append("end"))
        loop.run_once()
    assert [called for called in calls if called != "end"] == [f"{kind} {number}" for number in range(20)]
    assert loop.longest_round.ever < 0.013
    loop.close()
