"""One connector in one runner: its tasks, each in a thread, and the machine that says what each is to do."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from ottla.client import (
    LATEST,
    ClientError,
    ClientOptions,
    CommitFailed,
    Consumer,
    DeliveryFailed,
    ProducerFenced,
    TopicPartition,
)
from ottla.connect.configuration import Configuration, ConfigurationRefused, ConnectorConfiguration
from ottla.connect.interface import ConnectorRefused, Fenced, Task
from ottla.connect.metrics import TaskMetrics
from ottla.connect.positions import Positions, group_of
from ottla.connect.sink_work import SinkWork
from ottla.connect.source_work import SourceWork
from ottla.connect.state import StateFollower, TaskStatus, now_ms, steady_ms
from ottla.connect.task_machine import (
    Assigned,
    Ended,
    Progressed,
    Retries,
    Revoked,
    Start,
    State,
    TaskMachine,
    Tick,
    Wanted,
)

POLL_MS = 100
STATUS_MS = 2_000
STOP_SECONDS = 30.0
RETRY_SECONDS = 1.0
Tell = Callable[[str, str, TaskStatus], None]


class SupervisedTask:
    """A task of this runner: a machine, and the thread that does what it says."""

    def __init__(self, name: str, number: int, count: int, make_work: Any, retries: Retries, hide: Any) -> None:
        self.name = name
        """In the status: the number, or for a sink, whose tasks each runner has, the runner as well."""
        self.machine = TaskMachine(retries)
        self.metrics = TaskMetrics()
        self.task: Task | None = None
        self.told_state: State | None = None
        self.told_at_ms = 0
        """By the steady clock."""
        self._number = number
        self._count = count
        self._hide = hide
        self._events: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
        self._turn = 0
        self._work = make_work(self.metrics, self._progressed)
        self._thread: threading.Thread | None = None

    def handle(self, event: Any) -> None:
        """What the machine answers is done at once."""
        for effect in self.machine.handle(event, steady_ms()):
            if isinstance(effect, Start):
                self._start()
            elif self.task is not None:
                self.task.stop()

    def step(self) -> None:
        """What its thread has said, and the time."""
        while True:
            try:
                turn, event = self._events.get_nowait()
            except queue.Empty:
                break
            if turn == self._turn:
                self.handle(event)
        self.handle(Tick())

    def wait_until_stopped(self, deadline: float) -> None:
        """Whoever does not end in time is left behind: what it still writes is fenced."""
        thread = self._thread
        if thread is not None:
            thread.join(max(0.0, deadline - time.monotonic()))
            if thread.is_alive():
                self._turn += 1
                self.handle(Ended())
        self.step()

    def status(self, runner: str) -> TaskStatus:
        machine, now = self.machine, time.monotonic()
        is_running = machine.state is State.RUNNING
        return TaskStatus(
            state=machine.state.value,
            runner=runner,
            time_ms=now_ms(),
            records=self.metrics.records,
            bytes=self.metrics.bytes,
            records_per_second=round(self.metrics.records_per_second(now), 1),
            dead_letters=self.metrics.dead_letters,
            retries=self.metrics.retries,
            lag_seconds=self.task.lag_seconds if self.task is not None and is_running else None,
            doing=self.task.doing if self.task is not None and is_running else None,
            error=machine.error,
            error_at_ms=None if machine.error_at_ms is None else now_ms() - (steady_ms() - machine.error_at_ms),
            partitions=list(getattr(self._work, "partitions", [])),
        )

    def _progressed(self) -> None:
        self._events.put((self._turn, Progressed()))

    def _start(self) -> None:
        self._turn += 1
        if self.machine.attempts:
            self.metrics.retries += 1
        self.task = self._work.make_task(self._number, self._count)
        self._thread = threading.Thread(
            target=self._run,
            args=(self._turn, self.task),
            name=f"connect-{self.task.connector}-{self.name}",
            daemon=True,
        )
        self._thread.start()

    def _run(self, turn: int, task: Task) -> None:
        self._events.put((turn, self._outcome(task)))

    def _outcome(self, task: Task) -> Ended:
        try:
            self._work.run(task)
        except (ProducerFenced, Fenced, CommitFailed) as error:
            return Ended(self._hide(str(error) or "another runner has taken over"), is_fenced=True)
        except (ConnectorRefused, ConfigurationRefused) as error:
            return Ended(self._hide(str(error)), is_permanent=True)
        except ClientError as error:
            return Ended(self._hide(_with_advice(error)))
        except Exception as error:
            return Ended(self._hide(f"{type(error).__name__}: {error}".splitlines()[0]))
        return Ended()


def _with_advice(error: ClientError) -> str:
    """What happened, and what to do, where the client knows that."""
    cause = error.error if isinstance(error, DeliveryFailed) else error
    advice = getattr(cause, "advice", None)
    return f"{error} {advice}" if advice else str(error)


class Supervisor:
    def __init__(
        self, configuration: Configuration, connector: ConnectorConfiguration, states: StateFollower, runner: str,
        tell: Tell,
    ) -> None:  # fmt: skip
        self.connector = connector
        self._configuration = configuration
        self._options: ClientOptions = configuration.client_options
        self._states = states
        self._runner = runner
        self._tell = tell
        self._stopping = threading.Event()
        self._tasks: dict[int, SupervisedTask] = {}

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        """Until `stop`, whatever happens to the cluster meanwhile."""
        while not self._stopping.is_set():
            try:
                if self.connector.is_source:
                    self._run_source()
                else:
                    self._run_sink()
            except Exception as error:  # of the client, or of a connector that cannot be made
                self.tell_trouble(error)
                self._stopping.wait(RETRY_SECONDS)
            finally:
                self._end_tasks(list(self._tasks))

    def tell_trouble(self, error: Exception) -> None:
        """Why it is not in its group. Told here alone: the cluster may not be there to tell."""
        text = self._configuration.secrets.hide(str(error) or type(error).__name__)
        self._tell(self.connector.name, "-", TaskStatus("waiting", self._runner, now_ms(), error=text))

    # A source: the group says which tasks are here.

    def _run_source(self) -> None:
        common, bootstrap = self.connector.common, self._configuration.bootstrap
        count = self.connector.make().count_tasks(common.tasks)
        positions = Positions(bootstrap, self._options, self.connector.name, count)
        positions.ensure()

        def make_work(metrics: TaskMetrics, progressed: Callable[[], None]) -> SourceWork:
            return SourceWork(bootstrap, self._options, self.connector, positions, metrics, progressed)

        def take(places: list[TopicPartition]) -> None:
            consumer.pause(*places)  # only who has them matters, not what is in them
            for place in places:
                if place.partition < count:
                    self._begin_task(place.partition, count, str(place.partition), make_work)

        timeout_ms = self._configuration.session_timeout_ms
        with Consumer(
            bootstrap,
            positions.topic,
            group=group_of(self.connector.name),
            auto_commit=False,
            start=LATEST,
            session_timeout_ms=timeout_ms,
            heartbeat_ms=max(timeout_ms // 4, 1),
            on_assigned=take,
            on_revoked=lambda places: self._end_tasks([place.partition for place in places]),
            options=self._options,
        ) as consumer:
            while not self._stopping.is_set():
                consumer.poll(POLL_MS)
                self._step()
            self._end_tasks(list(self._tasks))

    # A sink: each runner has all tasks, and the group divides the partitions of the topics among them.

    def _run_sink(self) -> None:
        common, bootstrap = self.connector.common, self._configuration.bootstrap
        count = self.connector.make().count_tasks(common.tasks)

        def make_work(metrics: TaskMetrics, progressed: Callable[[], None]) -> SinkWork:
            timeout_ms = self._configuration.session_timeout_ms
            return SinkWork(bootstrap, self._options, self.connector, timeout_ms, metrics, progressed)

        for number in range(count):
            self._begin_task(number, count, f"{self._runner}/{number}", make_work)
        while not self._stopping.wait(POLL_MS / 1000):
            self._step()

    # Tasks.

    def _begin_task(self, number: int, count: int, name: str, make_work: Any) -> None:
        retries = Retries(self.connector.common.retries, self.connector.common.backoff_ms)
        hide = self._configuration.secrets.hide
        task = self._tasks[number] = SupervisedTask(name, number, count, make_work, retries, hide)
        task.handle(Wanted(*self._states.wish_for(self.connector.name)))
        task.handle(Assigned())
        self._tell_status(task)

    def _end_tasks(self, numbers: list[int]) -> None:
        """All are told before any is waited for."""
        ending = [self._tasks.pop(number) for number in numbers if number in self._tasks]
        for task in ending:
            task.handle(Revoked())
        deadline = time.monotonic() + STOP_SECONDS
        for task in ending:
            task.wait_until_stopped(deadline)
            if not self.connector.is_source:
                self._states.tell(self.connector.name, task.name, None)
            else:
                self._tell_status(task)

    def _step(self) -> None:
        wish = Wanted(*self._states.wish_for(self.connector.name))
        now = steady_ms()
        for task in self._tasks.values():
            task.handle(wish)
            task.step()
            if task.machine.state is not task.told_state or now - task.told_at_ms >= STATUS_MS:
                self._tell_status(task)

    def _tell_status(self, task: SupervisedTask) -> None:
        status = task.status(self._runner)
        task.told_state, task.told_at_ms = task.machine.state, steady_ms()
        self._states.tell(self.connector.name, task.name, status)
        self._tell(self.connector.name, task.name, status)
