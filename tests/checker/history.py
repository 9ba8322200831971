"""What clients did and saw, as events. Every client writes a file of its own; together they are a history.

Values are unique: no two sends share one. A process is one life of a client: started again, it has another
name. Times are of the machine's monotonic clock, taken before a call for what is invoked and after it for
what it gave.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, get_args


class Place(NamedTuple):
    topic: str
    partition: int


class Outcome(StrEnum):
    INVOKED = "invoked"
    OK = "ok"
    FAILED = "failed"
    """It did not happen, and never will."""
    UNKNOWN = "unknown"
    """It may have happened, or happen yet."""


class Step(StrEnum):
    BEGIN = "begin"
    COMMIT = "commit"
    ABORT = "abort"


class Isolation(StrEnum):
    COMMITTED = "read_committed"
    UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendInvoked:
    process: str
    at_ns: int
    place: Place
    value: str
    transaction: str | None = None
    source: str | None = None
    """The value that it was made from, where its transaction also commits the offset of that one."""
    key: str | None = None
    """In a topic that is compacted."""
    is_tombstone: bool = False
    """It deletes its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendEnded:
    process: str
    at_ns: int
    value: str
    outcome: Outcome
    offset: int = -1
    """-1 where it was not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    process: str
    at_ns: int
    place: Place
    isolation: Isolation
    records: tuple[tuple[int, str], ...]
    """Offsets and values."""
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Positioned:
    """The reader chose where it reads on."""

    process: str
    at_ns: int
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """The group gave it the partition, to be read from the group's offset. The time is from before that was asked."""

    process: str
    at_ns: int
    group: str
    place: Place
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    process: str
    at_ns: int
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionStep:
    process: str
    at_ns: int
    transaction: str
    step: Step
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """A group's offset. In a transaction it counts when that is committed."""

    process: str
    at_ns: int
    group: str
    place: Place
    offset: int
    outcome: Outcome
    transaction: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSeen:
    """Where the log ended. The time is from before that was asked."""

    process: str
    at_ns: int
    place: Place
    offset: int


Event: TypeAlias = (
    SendInvoked
    | SendEnded
    | Polled
    | Positioned
    | Assigned
    | Revoked
    | TransactionStep
    | OffsetCommitted
    | EndSeen
)  # fmt: skip
KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(Event)}
REVIVED: dict[str, Callable[[Any], Any]] = {
    "place": lambda place: Place(*place),
    "records": lambda records: tuple(map(tuple, records)),
    "outcome": Outcome,
    "step": Step,
    "isolation": Isolation,
}
"""Fields that JSON has in another form."""


class HistoryWriter:
    """Adds events to a file, each with the kernel before the call returns, so that a killed client loses none."""

    def __init__(self, path: Path, process: str) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        self._process = process

    def add(self, kind: type[Event], *, at_ns: int | None = None, **values: Any) -> None:
        event = kind(process=self._process, at_ns=time.monotonic_ns() if at_ns is None else at_ns, **values)
        self._file.write(encode(event))

    def close(self) -> None:
        self._file.close()


def encode(event: Event) -> bytes:
    return json.dumps({"event": type(event).__name__, **asdict(event)}).encode() + b"\n"


def decode(line: bytes) -> Event:
    values = json.loads(line)
    kind = KINDS[values.pop("event")]
    assert values.keys() == {field.name for field in fields(kind)}
    return kind(**{name: REVIVED.get(name, _same)(value) for name, value in values.items()})


def read_history(paths: Iterable[Path]) -> list[Event]:
    """The events of all files in the order of their times. A line that its writer did not finish is left out."""
    events = []
    for path in paths:
        lines = path.read_bytes().split(b"\n")
        events += [decode(line) for line in lines[:-1]]
    return sorted(events, key=lambda event: event.at_ns)


def _same(value: Any) -> Any:
    return value
