"""The life of a task, without I/O: what happened and the time come in, what is to be done goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

LONGEST_BACKOFF_MS = 60_000
FENCED_PAUSE_MS = 5_000
"""Long enough for the group to say who has the task: two runners must not fence each other in turns."""


class State(Enum):
    IDLE = "idle"
    """Another runner has it, or nobody."""
    RUNNING = "running"
    STOPPING = "stopping"
    """Told to stop, and has not ended yet."""
    PAUSED = "paused"
    WAITING = "waiting"
    """Failed, and will be tried again."""
    FAILED = "failed"


# Events.


class Assigned(NamedTuple):
    pass


class Revoked(NamedTuple):
    pass


class Wanted(NamedTuple):
    """What the users of the connector want. Another `restarts` than before: it is to begin anew."""

    is_paused: bool
    restarts: int


class Progressed(NamedTuple):
    """Something is done for good."""


class Ended(NamedTuple):
    """The work has ended: `error` says why, if nobody had told it to."""

    error: str | None = None
    is_permanent: bool = False
    is_fenced: bool = False


class Tick(NamedTuple):
    pass


# Effects.


class Start(NamedTuple):
    pass


class Stop(NamedTuple):
    pass


Effect: TypeAlias = Start | Stop
Handler: TypeAlias = Callable[["TaskMachine", Any], None]


class Retries(NamedTuple):
    """How often what failed is tried again before it counts as failed; it begins anew with each success."""

    most: int = 10
    backoff_ms: int = 500

    def pause_ms(self, attempt: int) -> int:
        return int(min(self.backoff_ms * 2 ** min(attempt - 1, 20), LONGEST_BACKOFF_MS))


class TaskMachine:
    def __init__(self, retries: Retries = Retries()) -> None:  # noqa: B008 - immutable
        self.state = State.IDLE
        self.retries = retries
        self.attempts = 0
        self.error: str | None = None
        self.error_at_ms: int | None = None
        self.retry_at_ms = 0
        self._is_assigned = False
        self._is_paused = False
        self._restarts: int | None = None
        self._was_restarts: int | None = None
        self._now_ms = 0
        self._effects: list[Effect] = []

    def handle(self, event: Any, now_ms: int) -> list[Effect]:
        """`now_ms` is of a clock that nobody sets: what waits for it must not wait for an hour that comes again."""
        self._now_ms = now_ms
        handler = TABLE.get((self.state, type(event)))
        _note(self, event)
        if handler is not None:
            handler(self, event)
        effects, self._effects = self._effects, []
        return effects

    # What the table names.

    def _settle(self, _: Any = None) -> None:
        """Nothing runs: whether it is to."""
        if not self._is_assigned:
            self.state = State.IDLE
        elif self._is_paused:
            self.state = State.PAUSED
        else:
            self.state = State.RUNNING
            self._effects.append(Start())

    def _stop(self, _: Any = None) -> None:
        self.state = State.STOPPING
        self._effects.append(Stop())

    def _begin_anew(self, _: Any = None) -> None:
        self.attempts = 0
        self.error = self.error_at_ms = None
        self._settle()

    def _take_wish(self, event: Wanted) -> None:
        if event.is_paused or self._is_restart(event):
            self._stop()

    def _take_wish_at_rest(self, event: Wanted) -> None:
        if event.is_paused or self._is_restart(event):
            self._begin_anew()

    def _is_restart(self, event: Wanted) -> bool:
        return self._was_restarts is not None and event.restarts != self._was_restarts

    def _progress(self, _: Progressed) -> None:
        self.attempts = 0

    def _end_by_itself(self, event: Ended) -> None:
        if event.error is None:
            self._settle()
            return
        self.error = event.error
        self.error_at_ms = self._now_ms
        if not event.is_fenced:
            self.attempts += 1
        if event.is_permanent or self.attempts > self.retries.most:
            self.state = State.FAILED
        else:
            self.state = State.WAITING
            pause_ms = FENCED_PAUSE_MS if event.is_fenced else self.retries.pause_ms(self.attempts)
            self.retry_at_ms = self._now_ms + pause_ms

    def _retry_when_due(self, _: Tick) -> None:
        if self._now_ms >= self.retry_at_ms:
            self._settle()


def _note(machine: TaskMachine, event: Any) -> None:
    """What stays true whatever the state is."""
    match event:
        case Assigned():
            machine._is_assigned = True
        case Revoked():
            machine._is_assigned = False
        case Wanted():
            machine._was_restarts = machine._restarts
            machine._is_paused = event.is_paused
            machine._restarts = event.restarts


TABLE: Mapping[tuple[State, type], Handler] = {
    (State.IDLE, Assigned): TaskMachine._begin_anew,
    (State.RUNNING, Revoked): TaskMachine._stop,
    (State.RUNNING, Wanted): TaskMachine._take_wish,
    (State.RUNNING, Progressed): TaskMachine._progress,
    (State.RUNNING, Ended): TaskMachine._end_by_itself,
    (State.STOPPING, Ended): TaskMachine._settle,
    (State.PAUSED, Revoked): TaskMachine._settle,
    (State.PAUSED, Wanted): TaskMachine._settle,
    (State.WAITING, Revoked): TaskMachine._settle,
    (State.WAITING, Wanted): TaskMachine._take_wish_at_rest,
    (State.WAITING, Tick): TaskMachine._retry_when_due,
    (State.FAILED, Revoked): TaskMachine._settle,
    (State.FAILED, Wanted): TaskMachine._take_wish_at_rest,
}
