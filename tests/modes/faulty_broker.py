"""A broker of the test kit as a process that can be killed, on a network that can be made bad."""

from __future__ import annotations

import sys
from pathlib import Path

from ottla.testing import LocalBroker
from tests.apache_kafka.harness import free_ports
from tests.compat.killable import SETTINGS, KillableBroker
from tests.compat.reporting_process import Commands, ReportingProcess, tell

MODULE = "tests.modes.faulty_broker"
ODDS = {"cut": 0.005, "lose_answer": 0.01, "delay": 0.03, "delay_seconds": 0.3}


class FaultyBroker(KillableBroker):
    """What is bad about the network is decided by the seed, and is another thing in each life of the broker."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__()
        self._folder = folder
        self._seed = seed
        [self._port] = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._process: ReportingProcess | None = None
        self._life = 0
        self._is_bad = False

    @property
    def process_id(self) -> int:
        raise NotImplementedError("it is not held")

    def start(self) -> None:
        self._life += 1
        self._process = ReportingProcess(MODULE, str(self._folder), str(self._port), f"{self._seed} {self._life}")
        self._process.wait_for("serves")
        self._tell()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None

    def terminate(self) -> None:
        if self._process is not None:
            self._process.command("stop")
            self._process.wait_for("stopped")
            self.kill()

    def make_bad(self, is_bad: bool) -> None:
        """From now on, whoever is killed in between."""
        self._is_bad = is_bad
        self._tell()

    def _tell(self) -> None:
        if self._process is not None:
            self._process.command("bad" if self._is_bad else "good")


def main(folder: str, port: str, seed: str) -> None:
    commands = Commands()
    broker = LocalBroker(folder, port=int(port), settings=SETTINGS)
    tell("serves")
    while (command := commands.next()) != ["stop"]:
        if command == ["bad"]:
            broker.faults.at_random(seed, **ODDS)
        else:
            broker.faults.clear()
    broker.stop()
    tell("stopped")


if __name__ == "__main__":
    main(*sys.argv[1:])
