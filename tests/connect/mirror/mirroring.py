"""Mirrors for tests: between two brokers, in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.client import ClientOptions
from ottla.connect.mirror.configuration import load_mirror
from ottla.connect.runner import Runner
from ottla.connect.state import TaskStatus, load_states
from tests.connect.running import toml_value, until


def write_mirror(path: Path, source: str, target: str, topics: list[str], **settings: Any) -> Path:
    given = {"source": source, "target": target, "topics": topics, "refresh_seconds": 0.2, "session_timeout_ms": 2_000}
    path.write_text("\n".join(f"{name} = {toml_value(value)}" for name, value in (given | settings).items()) + "\n")
    return path


@contextmanager
def mirroring(folder: Path, source: str, target: str, topics: list[str], **settings: Any) -> Iterator[Runner]:
    file = folder / f"{settings.get('name', 'mirror')}.toml"
    with Runner(load_mirror(write_mirror(file, source, target, topics, **settings))) as runner:
        yield runner


def status_of(target: str, name: str = "mirror", task: str = "0") -> TaskStatus | None:
    states, _ = load_states(target, ClientOptions())
    return states.of(name).tasks.get(task)


def failed_with(target: str, name: str = "mirror") -> str:
    told = until(lambda: (found := status_of(target, name)) and found.state == "failed" and found)
    return json.dumps(told.error)
