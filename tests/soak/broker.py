"""The broker of a soak: behind a network that can be cut, on a disk that can be filled, and measured from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.apache_kafka.harness import free_ports
from tests.compat.killable import SETTINGS, KillableBroker
from tests.faults.broker_process import BrokerProcess
from tests.soak.proxy import Proxy


class Footprint(NamedTuple):
    """What a process holds of the machine. Files of its logs count when they are open twice, or removed."""

    threads: int
    files: int
    memory_bytes: int

    def __str__(self) -> str:
        return f"{self.threads} threads, {self.files} files, {self.memory_bytes / 1e6:.0f} MB"


def footprint_of(process_id: int) -> Footprint:
    process = Path(f"/proc/{process_id}")
    status = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
    files = _count_files(process / "fd")
    return Footprint(int(status["Threads"]), files, int(status["VmRSS"].split()[0]) * 1024)


def _count_files(descriptors: Path) -> int:
    """Those that are open, but for one of each file that is there."""
    targets = []
    for descriptor in descriptors.iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed since
            targets.append(descriptor.readlink())
    return len(targets) - len({target for target in targets if target.is_file()})


class SoakBroker(KillableBroker):
    def __init__(self, folder: Path, settings: Sequence[str] = ()) -> None:
        super().__init__()
        self._folder = folder
        [port] = free_ports(1)
        self.proxy = Proxy(("127.0.0.1", port))
        self.bootstrap = f"127.0.0.1:{self.proxy.port}"
        listen = (f"listeners=PLAINTEXT://127.0.0.1:{port}", f"advertised.listeners=PLAINTEXT://{self.bootstrap}")
        every = (*(f"{name}={text}" for name, text in SETTINGS.items()), *settings)
        self._options = [
            "--listen", f"127.0.0.1:{port}",
            *(part for text in (*listen, *every) for part in ("--set", text)),
        ]  # fmt: skip
        self._process: BrokerProcess | None = None

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.process_id

    def start(self) -> None:
        self._process = BrokerProcess(self._folder, *self._options)

    def kill(self) -> None:
        if self._process is not None:
            self._complaints += self._process.errors_until_killed()
            self._process = None

    def terminate(self) -> None:
        if self._process is not None:
            self._complaints += self._process.errors()
            self._process = None
