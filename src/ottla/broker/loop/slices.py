"""Long work in short steps, so that nobody waits for it: a slice of time in each round of the loop.

Work is a generator. It yields after each step, which should take about a millisecond. It yields a job that runs on the
other thread before the next step, or `Waiting` for what will be told by a call, as the store and coordinators do. All
that shares one `Slices` shares one slice of time a round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from ottla.broker.loop.loop import Loop

SLICE_SECONDS = 0.004
MOST_REPEATS = 100  # of names in a request, where each is answered at length
MOST_REPEATED_GROUPS = 10  # the answer for each of which may be very large
MOST_STEPS = 1000  # of a slice, where time stands still
AT_ONCE_SECONDS = 0.002  # what takes no longer is not cut in slices
MAPPED_AT_ONCE = 100  # items in a step, where each takes some microseconds

T = TypeVar("T")
R = TypeVar("R")
Job = Callable[[], None]
Finished = Callable[[Exception | None], None]


class Waiting(NamedTuple):
    """The next step comes when somebody calls; what went wrong is raised in it."""

    begin: Callable[[Finished], None]


StepResult = Job | Waiting | None
Steps = Generator[StepResult, None, Any]


class Future(Generic[T]):
    """A value that comes later. Steps get it by `yield from future.wait()`."""

    __slots__ = ("_call", "_value", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._value: T | None = None
        self._call: Finished | None = None

    def set(self, value: T) -> None:
        self.is_set = True
        self._value = value
        call, self._call = self._call, None
        if call is not None:
            call(None)

    @property
    def value(self) -> T:
        assert self.is_set
        return self._value  # type: ignore[return-value]

    def wait(self) -> Generator[Waiting, None, T]:
        if not self.is_set:
            yield Waiting(self._call_when_set)
        return self.value

    def _call_when_set(self, call: Finished) -> None:
        self._call = call


class Task:
    """Work under way. `done` is called once, with the result or with what went wrong, unless it is cancelled.

    It is let go of then: who is told often knows the task, and that cycle might never be freed (loop/collector.py).
    """

    __slots__ = ("_done", "_slices", "failure", "is_running", "spent_seconds", "steps", "waits")

    def __init__(self, slices: Slices, steps: Steps, done: Callable[[Any, Exception | None], None]) -> None:
        self._slices = slices
        self.steps: Steps | None = steps
        self.is_running = False
        self.waits = False  # for its job, or for a future
        self.spent_seconds = 0.0
        self.failure: Exception | None = None  # of a job, to be told to the steps
        self._done: Callable[[Any, Exception | None], None] | None = done

    def cancel(self) -> None:
        """Let go of it where it stands."""
        steps, self.steps, self._done = self.steps, None, None
        if steps is not None:
            self._slices.forget(self)
            if not self.is_running:  # a step may end itself, and then is the last
                steps.close()

    def finish(self, result: Any, failure: Exception | None) -> None:
        done, self.steps, self._done = self._done, None, None
        assert done is not None
        done(result, failure)


class Slices:
    def __init__(self, loop: Loop, *, takes_turns: bool = True) -> None:
        """`takes_turns`: a step of each in turn. Otherwise one after the other, for work that holds much memory."""
        self.loop = loop
        self._takes_turns = takes_turns
        self._tasks: deque[Task] = deque()
        self._is_called = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(
        self, steps: Steps, done: Callable[[Any, Exception | None], None], job: Job | Waiting | None = None
    ) -> Task:
        """Begin work in the next round, or behind a job that it has asked for already."""
        task = Task(self, steps, done)
        if job is not None:
            self._run_job(task, job)
        if job is None or not self._takes_turns:
            self._tasks.append(task)
            self._call_soon()
        return task

    def run(self, steps: Steps, done: Callable[[Any, Exception | None], None]) -> None:
        """Run steps for a moment, and what is left in slices."""
        begun = begin(self.loop, steps)
        if begun.is_over:
            done(begun.result, begun.failure)
        else:
            self.start(steps, done, begun.job)

    def forget(self, task: Task) -> None:
        if task in self._tasks:
            self._tasks.remove(task)
            if not self._takes_turns:
                self._call_soon()  # the next may have waited for it

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

    def _run_job(self, task: Task, job: Job | Waiting) -> None:
        task.waits = True
        if isinstance(job, Waiting):
            job.begin(lambda failure: self._job_done(task, failure))
        else:
            self.loop.run_blocking(job, lambda failure: self._job_done(task, failure))

    def _job_done(self, task: Task, failure: Exception | None) -> None:
        task.waits = False
        if task.steps is not None:
            task.failure = failure
            if self._takes_turns:
                self._tasks.append(task)
        self._call_soon()


class Begun(NamedTuple):
    """What became of the first steps of some work."""

    is_over: bool
    result: Any = None
    failure: Exception | None = None
    job: StepResult = None  # that the next step waits for


def begin(loop: Loop, steps: Steps) -> Begun:
    """Run steps for a moment; at least one."""
    now = loop.now
    started = now()
    try:
        job = next(steps)
        while job is None and now() - started < AT_ONCE_SECONDS:
            job = next(steps)
    except StopIteration as end:
        return Begun(is_over=True, result=end.value)
    except Exception as failure:
        return Begun(is_over=True, failure=failure)
    return Begun(is_over=False, job=job)


def parts_of(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """The items in parts of so many, which are dealt with a part a step."""
    for start in range(0, len(items), size):
        yield items[start : start + size]


class TopicPart(NamedTuple):
    """Some of the partitions that a request names of a topic."""

    topic: Any
    partitions: Sequence[Any]
    goes_on: bool  # others of this topic were in the part before


def parts_by_topic(topics: Iterable[Any], size: int) -> Iterator[list[TopicPart]]:
    """Topics with their partitions, in parts of so many topics and partitions."""
    part: list[TopicPart] = []
    room = size
    for topic in topics:
        partitions, start = topic.partitions, 0
        while True:
            taken = partitions[start : start + room]
            part.append(TopicPart(topic, taken, goes_on=start > 0))
            start += len(taken)
            room -= len(taken) + 1
            if room <= 0:
                yield part
                part, room = [], size
            if start >= len(partitions):
                break
    if part:
        yield part


def with_few_repeats(items: Iterable[T], most: int = MOST_REPEATS) -> list[T]:
    """Each item, and what is repeated as often as an honest client might: the answer to each can be a large one."""
    seen: set[T] = set()
    kept: list[T] = []
    repeats = 0
    for item in items:
        if item in seen:
            repeats += 1
            if repeats > most:
                continue
        seen.add(item)
        kept.append(item)
    return kept


def mapped(function: Callable[[T], R], items: Iterable[T], at_once: int = 1) -> Generator[None, None, list[R]]:
    """What a function makes of each item, so many a step."""
    results = []
    for number, item in enumerate(items, start=1):
        results.append(function(item))
        if not number % at_once:
            yield
    return results


def finished(steps: Steps) -> Any:
    """The result of work that is done at once, jobs and all; it must not wait for anybody."""
    failure: Exception | None = None
    while True:
        try:
            job = next(steps) if failure is None else steps.throw(failure)
        except StopIteration as end:
            return end.value
        failure = None
        assert not isinstance(job, Waiting), "what is waited for comes in rounds of the loop: run_to_end"
        if job is not None:
            try:
                job()
            except Exception as error:
                failure = error


def run_to_end(loop: Loop, steps: Steps) -> Any:
    """Run work to its end on a loop that nobody else runs, as when a broker starts or stops. Its result."""
    ended: list[tuple[Any, Exception | None]] = []
    Slices(loop).start(steps, lambda result, failure: ended.append((result, failure)))
    loop.run_until(lambda: bool(ended))
    [(result, failure)] = ended
    if failure is not None:
        raise failure
    return result
