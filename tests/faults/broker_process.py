"""A broker as a process of its own, to be killed, watched and started again on the same data."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

STOP_S = 20.0


class BrokerProcess:
    """Runs inside the `with`; what it logs below warnings is not shown.

    `synced`: it runs on a disk that forgets what was not synced, and keeps there what was. `program`: the module that
    runs in Ottla's place, and what it wants to know before the command line's arguments.
    """

    def __init__(
        self, folder: Path, *options: str, synced: Path | None = None, program: Sequence[str] = ("ottla",)
    ) -> None:
        if synced is not None:
            program = ("tests.faults.forgetting_disk", str(synced))
        command = [sys.executable, "-m", *program, "serve", "--listen", "127.0.0.1:0", "--data", str(folder)]
        self._process = subprocess.Popen(
            [*command, "--log-level", "error", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        first_line = self._process.stdout.readline()  # "Ottla 1.2 serves on 127.0.0.1:9092, data in …"
        if " serves on " not in first_line:
            raise RuntimeError(f"the broker did not start: {first_line}{self._process.communicate()[1]}")
        self.bootstrap = first_line.partition(" serves on ")[2].partition(",")[0]

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    @property
    def process_id(self) -> int:
        return self._process.pid

    def next_line(self) -> str:
        """What it says next on its standard output."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def memory_bytes(self, field: str = "VmRSS") -> int:
        """What it holds of the machine's memory; `VmHWM`: or ever held."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition(f"{field}:")[2].split()[0]) * 1024

    def kill(self) -> None:
        self._process.kill()

    def errors(self) -> str:
        """End it in good order; what it had to complain about."""
        self._process.terminate()
        return self._process.communicate(timeout=STOP_S)[1]

    def errors_until_killed(self) -> str:
        """End it on the spot; what it had complained about."""
        self._process.kill()
        return self._process.communicate()[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process.returncode is None:
            self.errors_until_killed()
