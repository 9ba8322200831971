"""What a check of a log's files found, file by file."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.log.inspect.files import LogFile

MOST_PROBLEMS = 100

Progress = Callable[[Path, int], None]  # a file, and how many of its bytes were read since the last call


def no_progress(_path: Path, _read_bytes: int) -> None:
    pass


class Problem(NamedTuple):
    reason: str
    position: int | None = None  # the byte in the file, where there is one to point at


@dataclasses.dataclass(slots=True)
class FileReport:
    file: LogFile
    size_bytes: int
    problems: list[Problem] = dataclasses.field(default_factory=list)
    facts: dict[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def on(cls, file: LogFile) -> FileReport:
        return cls(file, file.path.stat().st_size)

    @property
    def is_ok(self) -> bool:
        return not self.problems

    @property
    def is_full(self) -> bool:
        """Whether so much is wrong that more would tell nothing new."""
        return len(self.problems) >= MOST_PROBLEMS

    def add(self, reason: str, position: int | None = None) -> None:
        if len(self.problems) == MOST_PROBLEMS - 1:
            reason, position = f"more than {MOST_PROBLEMS - 1} problems: the rest is not listed", None
        if not self.is_full:
            self.problems.append(Problem(reason, position))
