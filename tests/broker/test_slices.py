"""Long work in short steps: turns, jobs, failures, cancelling."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import (
    MOST_REPEATS,
    MOST_STEPS,
    Future,
    Slices,
    Steps,
    finished,
    mapped,
    parts_by_topic,
    parts_of,
    with_few_repeats,
)


class SlowedLoop:
    """Rounds that are made by hand, on a clock that each look at it moves on."""

    def __init__(self, step_seconds: float = 0.0) -> None:
        self._step_seconds = step_seconds
        self._now = 0.0
        self.soon: list[Callable[[], None]] = []
        self.jobs: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def now(self) -> float:
        self._now += self._step_seconds
        return self._now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run_blocking(self, job: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        self.jobs.append((job, done))

    def round(self) -> None:
        soon, self.soon = self.soon, []
        for callback in soon:
            callback()

    def run_job(self) -> None:
        job, done = self.jobs.pop(0)
        try:
            job()
        except ValueError as error:
            done(error)
        else:
            done(None)


class Ended:
    """What became of a task."""

    def __init__(self) -> None:
        self.results: list[Any] = []
        self.failures: list[Exception] = []

    def __call__(self, result: Any, failure: Exception | None) -> None:
        if failure is None:
            self.results.append(result)
        else:
            self.failures.append(failure)


def slices_on(loop: SlowedLoop, *, takes_turns: bool = True) -> Slices:
    return Slices(cast(Loop, loop), takes_turns=takes_turns)


def counted(count: int, seen: list[str], name: str = "") -> Steps:
    for number in range(count):
        seen.append(f"{name}{number}")
        yield None
    return name


def test_tasks_take_turns_or_follow_each_other() -> None:
    for takes_turns, order in ((True, ["a0", "b0", "a1", "b1"]), (False, ["a0", "a1", "b0", "b1"])):
        loop, seen, ended = SlowedLoop(), list[str](), Ended()
        slices = slices_on(loop, takes_turns=takes_turns)
        slices.start(counted(2, seen, "a"), ended)
        slices.start(counted(2, seen, "b"), ended)
        loop.round()
        assert seen == order
        assert ended.results == ["a", "b"]
        assert not slices


def test_a_slice_ends_with_its_time_and_goes_on_in_the_next_round() -> None:
    loop, seen, ended = SlowedLoop(step_seconds=0.002), list[str](), Ended()
    slices_on(loop).start(counted(5, seen), ended)
    rounds = 0
    while loop.soon:
        loop.round()
        rounds += 1
    assert len(seen) == 5
    assert rounds == 3


def test_a_slice_ends_where_time_stands_still() -> None:
    loop, seen = SlowedLoop(), list[str]()
    slices_on(loop).start(counted(MOST_STEPS + 1, seen), Ended())
    loop.round()
    assert len(seen) == MOST_STEPS
    assert len(loop.soon) == 1


def with_job(job: Callable[[], None]) -> Steps:
    try:
        yield job
    except ValueError:
        return "failed"
    return "done"


def broken() -> None:
    raise ValueError


@pytest.mark.parametrize("takes_turns", [True, False])
@pytest.mark.parametrize(("job", "result"), [(lambda: None, "done"), (broken, "failed")])
def test_a_task_waits_for_its_job_and_learns_of_its_failure(
    takes_turns: bool, job: Callable[[], None], result: str
) -> None:
    loop, ended, other, seen = SlowedLoop(), Ended(), Ended(), list[str]()
    slices = slices_on(loop, takes_turns=takes_turns)
    slices.start(with_job(job), ended)
    slices.start(counted(1, seen), other)
    loop.round()
    assert len(other.results) == takes_turns  # one after the other: behind the job, for memory's sake
    assert not ended.results
    loop.run_job()
    loop.round()
    assert ended.results == [result]
    assert len(other.results) == 1
    assert finished(with_job(job)) == result


def test_a_cancelled_task_makes_no_step_and_tells_nobody() -> None:
    loop, seen, ended = SlowedLoop(), list[str](), Ended()
    slices = slices_on(loop)
    task = slices.start(counted(3, seen), ended)
    task.cancel()
    loop.round()
    waiting = slices.start(with_job(broken), ended)
    loop.round()
    waiting.cancel()
    loop.run_job()
    loop.round()
    assert not seen
    assert not ended.results
    assert not ended.failures


def test_a_step_may_cancel_its_own_task() -> None:
    loop, ended = SlowedLoop(), Ended()
    slices = slices_on(loop)

    def steps() -> Steps:
        task.cancel()
        yield None
        raise AssertionError

    task = slices.start(steps(), ended)
    loop.round()
    assert not slices
    assert not ended.results


def test_what_fails_is_told_and_the_others_go_on() -> None:
    loop, ended, seen = SlowedLoop(), Ended(), list[str]()

    def failing() -> Steps:
        yield None
        raise ValueError

    def complain(_result: Any, failure: Exception | None) -> None:
        assert failure is not None
        raise failure

    slices = slices_on(loop)
    slices.start(failing(), complain)
    slices.start(counted(3, seen), ended)
    with pytest.raises(ValueError):  # for the loop to tell
        loop.round()
    loop.round()
    assert len(seen) == 3
    assert ended.results == [""]


def test_an_answer_repeats_itself_a_hundred_times() -> None:
    assert with_few_repeats([1, 2, 1]) == [1, 2, 1]
    assert with_few_repeats([1, 1, 1, 2], most=1) == [1, 1, 2]
    assert with_few_repeats([1] * 1000 + [2]) == [1] * (MOST_REPEATS + 1) + [2]


def test_parts_and_maps() -> None:
    assert list(parts_of([1, 2, 3], 2)) == [[1, 2], [3]]
    assert not list(parts_of([], 2))
    assert finished(mapped(str, [1, 2])) == ["1", "2"]


def test_steps_wait_for_a_future() -> None:
    loop = SlowedLoop()
    slices, ended, future = slices_on(loop), Ended(), Future[int]()

    def steps() -> Steps:
        return (yield from future.wait()) + (yield from future.wait())

    slices.start(steps(), ended)
    loop.round()
    loop.round()
    assert (ended.results, len(slices)) == ([], 0)
    future.set(2)
    loop.round()
    assert ended.results == [4]


def test_what_waits_for_a_future_can_be_cancelled() -> None:
    loop = SlowedLoop()
    slices, ended, future = slices_on(loop), Ended(), Future[int]()
    task = slices.start(future.wait(), ended)
    loop.round()
    task.cancel()
    future.set(1)
    loop.round()
    assert (ended.results, ended.failures) == ([], [])


def test_who_comes_behind_a_cancelled_task_has_its_turn() -> None:
    loop, seen, ended = SlowedLoop(), list[str](), Ended()
    slices = slices_on(loop, takes_turns=False)
    never: Future[int] = Future()
    first = slices.start(never.wait(), ended)
    loop.round()
    slices.start(counted(1, seen, "next"), ended)
    loop.round()
    assert seen == []
    first.cancel()
    loop.round()
    assert ended.results == ["next"]


@pytest.mark.parametrize("counts", [[], [0], [3], [0, 0, 7], [5, 5, 5], [1, 2, 3, 4], [12]])
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_parts_by_topic_have_everything_once_and_in_order(counts: list[int], size: int) -> None:
    topics = [SimpleNamespace(partitions=[(place, n) for n in range(count)]) for place, count in enumerate(counts)]
    parts = list(parts_by_topic(topics, size))
    assert [each for part in parts for _, named, _ in part for each in named] == [
        each for topic in topics for each in topic.partitions
    ]
    assert [topic for part in parts for topic, _, goes_on in part if not goes_on] == topics
    assert all(sum(len(named) for _, named, _ in part) <= size and len(part) <= size for part in parts)
