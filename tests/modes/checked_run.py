"""A checked run of ottla.client: client processes and the broker are killed, and the network is bad meanwhile.

`python -m tests.modes.checked_run --seconds 300 --seed 7 --protocol consumer` runs it for as long as one likes.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import tempfile
from pathlib import Path

from tests.checker.run import FAILURES, Report, Run
from tests.compat.reporting_process import eventually
from tests.modes.faulty_broker import FaultyBroker

CLIENTS = "tests.modes.checked_clients"
PROTOCOLS = ("classic", "consumer")
ROLES = {"producer": 2, "transactor": 1, "worker": 2, "reader": 1, "follower": 1}


class BadNetworkRun(Run):
    def __init__(self, broker: FaultyBroker, folder: Path, seed: int, protocol: str) -> None:
        super().__init__(broker, folder, seed, clients=(CLIENTS, protocol), roles=ROLES)
        self._network = broker

    def _disturb(self, seconds: float) -> None:
        """When all are at work."""
        eventually(self._is_at_work, lambda: (self._folder / FAILURES).read_text())
        self._network.make_bad(True)
        super()._disturb(seconds)
        self._network.make_bad(False)

    def _is_at_work(self) -> bool:
        return any(b"OffsetCommitted" in path.read_bytes() for path in self._history.glob("worker-*"))


def checked_run(folder: Path, seconds: float, seed: int, protocol: str) -> Report:
    (folder / "broker").mkdir()
    broker = FaultyBroker(folder / "broker", seed)
    with contextlib.ExitStack() as stack:
        stack.callback(broker.kill)
        broker.start()
        return BadNetworkRun(broker, folder, seed, protocol).execute(seconds)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.modes.checked_run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--protocol", choices=PROTOCOLS, default=PROTOCOLS[0])
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ottla-checked-run-"))
    print(f"seed {arguments.seed}, the history and the broker's data are in {folder}", flush=True)
    report = checked_run(folder, arguments.seconds, arguments.seed, arguments.protocol)
    print(report)
    return 1 if report.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
