"""Runners for tests: in this process, and as processes that can be killed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.client import EARLIEST, LATEST, Reader, ServerError
from ottla.connect.configuration import Configuration, load
from ottla.connect.runner import Runner

HERE = Path(__file__).parent
WAIT_SECONDS = 60.0


def toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name} = {toml_value(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


def write_file(path: Path, bootstrap: str, connectors: Mapping[str, Mapping[str, Any]], **settings: Any) -> Path:
    lines = [
        f"bootstrap = {json.dumps(bootstrap)}",
        *(f"{name} = {toml_value(each)}" for name, each in settings.items()),
    ]
    for name, given in connectors.items():
        lines.append(f"[connectors.{name}]")
        lines += [f"{key} = {toml_value(value)}" for key, value in given.items()]
    path.write_text("\n".join(lines) + "\n")
    return path


def configuration_of(folder: Path, bootstrap: str, connectors: Mapping[str, Mapping[str, Any]]) -> Configuration:
    return load(write_file(folder / "connect.toml", bootstrap, connectors, session_timeout_ms=2_000))


@contextmanager
def running(folder: Path, bootstrap: str, connectors: Mapping[str, Mapping[str, Any]]) -> Iterator[Runner]:
    with Runner(configuration_of(folder, bootstrap, connectors)) as runner:
        yield runner


def until(condition: Callable[[], Any], seconds: float = WAIT_SECONDS) -> Any:
    """What the condition gives as soon as that is true."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come to that in time"
        time.sleep(0.02)
    return found


def records_of(bootstrap: str, topic: str) -> list[Any]:
    """What is committed in a topic now, in the order of partitions and offsets."""
    try:
        with Reader(bootstrap, topic, start=EARLIEST, end=LATEST) as reader:
            found = [(fetched.partition, record) for fetched in reader for record in fetched.records]
    except ServerError:
        return []
    return [record for _, record in sorted(found, key=lambda each: (each[0], each[1].offset))]


def values_of(bootstrap: str, topic: str) -> list[bytes]:
    return [record.value for record in records_of(bootstrap, topic)]


class RunnerProcess:
    """`ottla connect run`, or `mirror run`, in a process of its own. Ends with the `with`."""

    def __init__(self, file: Path, verb: str = "connect", options: Sequence[str] = ()) -> None:
        environment = os.environ | {"PYTHONPATH": str(HERE.parents[1])}
        command = [sys.executable, "-m", "ottla", verb, "run", str(file), "--json", *options]
        self._output = (file.parent / f"runner-{time.monotonic_ns()}.txt").open("w+b")
        self.process = subprocess.Popen(
            command, stdout=self._output, stderr=subprocess.STDOUT, env=environment, cwd=file.parent
        )

    def __enter__(self) -> "RunnerProcess":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.kill()
        self._output.close()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(WAIT_SECONDS) == 0

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def lines(self) -> list[dict[str, Any]]:
        text = Path(self._output.name).read_text()
        return [json.loads(line) for line in text.splitlines() if line.startswith("{")]

    def said(self) -> list[dict[str, Any]]:
        """Of tasks."""
        return [line for line in self.lines() if "task" in line]

    def runs(self) -> bool:
        """Whether a task has run here."""
        return bool(self.tasks_run())

    def tasks_run(self) -> set[str]:
        """The tasks that have got something done here."""
        return {each["task"] for each in self.said() if each["records"] > 0}
