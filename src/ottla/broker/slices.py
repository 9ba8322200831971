"""Long work in short steps, so that nobody waits for it: a slice of time in each round of the loop.

Work is a generator. It yields after each step, which should take about a millisecond, or yields a job that runs on the
other thread before the next step. All that shares one `Slices` shares one slice of time a round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ottla.broker.loop import Loop

SLICE_SECONDS = 0.004
MOST_REPEATS = 100  # of names in a request, where each is answered at length
MOST_STEPS = 1000  # of a slice, where time stands still

T = TypeVar("T")
R = TypeVar("R")
Job = Callable[[], None]
Steps = Generator[Job | None, None, Any]


class Task:
    """Work under way. `done` is called once, with the result or with what went wrong, unless it is cancelled."""

    __slots__ = ("_done", "_slices", "failure", "is_running", "spent_seconds", "steps", "waits")

    def __init__(self, slices: Slices, steps: Steps, done: Callable[[Any, Exception | None], None]) -> None:
        self._slices = slices
        self.steps: Steps | None = steps
        self.is_running = False
        self.waits = False  # for its job
        self.spent_seconds = 0.0
        self.failure: Exception | None = None  # of a job, to be told to the steps
        self._done = done

    def cancel(self) -> None:
        """Let go of it where it stands."""
        steps, self.steps = self.steps, None
        if steps is not None:
            self._slices.forget(self)
            if not self.is_running:  # a step may end itself, and then is the last
                steps.close()

    def finish(self, result: Any, failure: Exception | None) -> None:
        self.steps = None
        self._done(result, failure)


class Slices:
    def __init__(self, loop: Loop, *, takes_turns: bool = True) -> None:
        """`takes_turns`: a step of each in turn. Otherwise one after the other, for work that holds much memory."""
        self.loop = loop
        self._takes_turns = takes_turns
        self._tasks: deque[Task] = deque()
        self._is_called = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, steps: Steps, done: Callable[[Any, Exception | None], None], job: Job | None = None) -> Task:
        """Begin work in the next round, or behind a job that it has asked for already."""
        task = Task(self, steps, done)
        if job is not None:
            self._run_job(task, job)
        if job is None or not self._takes_turns:
            self._tasks.append(task)
            self._call_soon()
        return task

    def forget(self, task: Task) -> None:
        if task in self._tasks:
            self._tasks.remove(task)

    def cancel_all(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    def _call_soon(self) -> None:
        if not self._is_called:
            self._is_called = True
            self.loop.call_soon(self._run)

    def _run(self) -> None:
        """One slice."""
        self._is_called = False
        tasks, now = self._tasks, self.loop.now
        started = last = now()
        for _ in range(MOST_STEPS):
            if not tasks:
                return
            task = tasks[0]
            if self._takes_turns:
                tasks.rotate(-1)
            elif task.waits:
                return
            task.is_running = True
            try:
                self._step(task)
            except Exception:
                self._call_soon()  # who was to be told failed; the others go on
                raise
            finally:
                task.is_running = False
            ended = now()
            task.spent_seconds += ended - last
            last = ended
            if ended - started >= SLICE_SECONDS:
                break
        if tasks:
            self._call_soon()

    def _step(self, task: Task) -> None:
        steps, failure = task.steps, task.failure
        assert steps is not None
        task.failure = None
        try:
            job = next(steps) if failure is None else steps.throw(failure)
        except StopIteration as end:
            self._end(task, end.value, None)
        except Exception as error:
            self._end(task, None, error)
        else:
            if task.steps is None:
                steps.close()  # it was cancelled by its own step
            elif job is not None:
                if self._takes_turns:
                    self.forget(task)
                self._run_job(task, job)

    def _end(self, task: Task, result: Any, failure: Exception | None) -> None:
        if task.steps is not None:
            self.forget(task)
            task.finish(result, failure)

    def _run_job(self, task: Task, job: Job) -> None:
        task.waits = True
        self.loop.run_blocking(job, lambda failure: self._job_done(task, failure))

    def _job_done(self, task: Task, failure: Exception | None) -> None:
        task.waits = False
        if task.steps is not None:
            task.failure = failure
            if self._takes_turns:
                self._tasks.append(task)
        self._call_soon()


def parts_of(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in parts of so many, which are dealt with a part a step."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


def with_few_repeats(items: Iterable[T]) -> list[T]:
    """Each item, and what is repeated as often as an honest client might: the answer to each can be a large one."""
    seen: set[T] = set()
    kept: list[T] = []
    repeats = 0
    for item in items:
        if item in seen:
            repeats += 1
            if repeats > MOST_REPEATS:
                continue
        seen.add(item)
        kept.append(item)
    return kept


def mapped(function: Callable[[T], R], items: Iterable[T]) -> Generator[None, None, list[R]]:
    """What a function makes of each item, one a step."""
    results = []
    for item in items:
        results.append(function(item))
        yield
    return results


def finished(steps: Steps) -> Any:
    """The result of work that is done at once, jobs and all."""
    failure: Exception | None = None
    while True:
        try:
            job = next(steps) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value
        failure = None
        if job is not None:
            try:
                job()
            except Exception as error:
                failure = error
