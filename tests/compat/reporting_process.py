"""A client in a process of its own, which a test may kill: it tells what happens, a line each, and takes commands."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeAlias

from tests.compat.client import WAIT_S

Line: TypeAlias = list[Any]


class ReportingProcess:
    """The side of the test."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._told = threading.Condition()
        self.lines: list[Line] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for text in self._process.stdout:
            line = json.loads(text)
            with self._told:
                self.lines.append(line)
                self._told.notify_all()
                self._hear(line)
        with self._told:
            self._told.notify_all()

    def _hear(self, line: Line) -> None:
        """What a kind of process keeps of what it was told."""

    def command(self, *words: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        self._process.kill()
        self._end()

    def wait_for(self, word: str) -> Line:
        """The first line of this kind."""
        deadline = time.monotonic() + WAIT_S
        with self._told:
            while not (found := [line for line in self.lines if line[0] == word]):
                assert self._reader.is_alive(), f"ended before it said {word!r}: {self.lines[-3:]}"
                assert self._told.wait(deadline - time.monotonic()), f"does not say {word!r}: {self.lines[-3:]}"
        return found[0]

    def _end(self) -> None:
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process.returncode is None:
            self.kill()


class Commands:
    """The side of the process: tells, and is told."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for text in sys.stdin:
            self._waiting.put(json.loads(text))
        os._exit(1)  # the test has gone, however it went: nobody is left to end this process

    def waiting(self) -> Iterator[list[str]]:
        while not self._waiting.empty():
            yield self._waiting.get()

    def next(self) -> list[str]:
        return self._waiting.get()


def tell(*words: Any) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def eventually(is_so: Callable[[], bool], shown: Callable[[], object]) -> None:
    """Returns when it is so; fails with what is shown if it does not come."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, shown()
        time.sleep(0.02)
