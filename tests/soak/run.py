"""A soak: everything at once, disturbed; then nothing may be lost, and nothing may be left behind.

First clients of every kind work while they and the broker are killed and stopped, connections are cut, quotas come and
go and the disk is full for a moment; the checker judges what they saw. Then one broker works undisturbed, round after
round with new clients: when they have gone, it has no thread, file or megabyte more than after the first rounds.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.checker.run import ROLES, TOPICS, Client, Report, Run
from tests.faults.small_disk import SmallDisk, can_mount, small_disk
from tests.soak.broker import Footprint, SoakBroker, footprint_of
from tests.soak.clients import OTHERS

CLIENTS = "tests.soak.clients"
SOAK_ROLES = ROLES | {"kafka-python": 1, "aiokafka": 1, "ottla-client": 1, "administrator": 1}
DISK_BYTES = 256 << 20
DISK_BYTES_A_SECOND = 1 << 20  # that it is longer
FULL_S = 0.5
LONGEST_ROUND_S = 3.0
WARM_ROUNDS = 2
LEAST_ROUNDS = 2
SETTLED_S = 30.0
THREADS = 3  # the loop, the store's, and the one for what blocks, which comes when it is first needed
MORE_FILES = 12  # of segments that are not yet removed
MORE_MEMORY_BYTES = 24 << 20  # and a little for each thousand of records, which the broker's caches keep


class Growth(NamedTuple):
    before: Footprint
    after: Footprint
    rounds: int

    @property
    def complaints(self) -> list[str]:
        found = []
        if self.after.threads > max(self.before.threads, THREADS):
            found.append("threads are left behind")
        if self.after.files > self.before.files + MORE_FILES:
            found.append("files are left open")
        if self.after.memory_bytes > self.before.memory_bytes + MORE_MEMORY_BYTES:
            found.append("memory is not given back")
        return found

    def __str__(self) -> str:
        told = "; ".join(self.complaints) or "nothing is left behind"
        return f"after {WARM_ROUNDS} rounds {self.before}; after {self.rounds} more {self.after}: {told}"


class SoakRun(Run):
    topics: Mapping[str, dict[str, str]] = TOPICS | {OTHERS: {}}

    def __init__(self, broker: SoakBroker, folder: Path, seed: int, disk: SmallDisk | None) -> None:
        super().__init__(broker, folder, seed, clients=(CLIENTS,), roles=SOAK_ROLES)
        self._soaked = broker
        self._disk = disk
        self._seed = seed

    def _disturb_once(self) -> None:
        chance = self._random.random()
        if chance < 0.15:
            self._soaked.proxy.cut()
            self._kill_counts["connections cut"] += 1
        elif chance < 0.25 and self._disk is not None:
            self._disk.fill()
            time.sleep(FULL_S)
            self._disk.clear()
            self._kill_counts["full disk"] += 1
        else:
            super()._disturb_once()

    def growth(self, seconds: float) -> Growth:
        """Of a broker that nobody disturbs, while clients come and go."""
        self._broker.terminate()
        self._broker.start()
        round_s = min(LONGEST_ROUND_S, seconds / 2)
        for number in range(WARM_ROUNDS):
            self._round(f"warm{number}", round_s)
        before = self._settled_footprint()
        deadline = time.monotonic() + seconds
        rounds = 0
        while rounds < LEAST_ROUNDS or time.monotonic() < deadline:
            self._round(f"round{rounds}", round_s)
            rounds += 1
        return Growth(before, self._settled_footprint(), rounds)

    def _round(self, name: str, seconds: float) -> None:
        clients = [
            Client((CLIENTS,), role, number, self._broker.bootstrap, self._folder, f"{self._seed} {name}")
            for role, count in SOAK_ROLES.items()
            for number in range(count)
        ]
        try:
            time.sleep(seconds)
        finally:
            for client in clients:
                client.kill()  # all at once: some would wait for the others
        for role in ("transactor", "keeper", "worker"):
            self._end_transactions(role)

    def _settled_footprint(self) -> Footprint:
        """When connections are closed and segments removed: as long as it still goes down."""
        deadline = time.monotonic() + SETTLED_S
        found = footprint_of(self._soaked.process_id)
        while time.monotonic() < deadline:
            time.sleep(1.0)
            now = footprint_of(self._soaked.process_id)
            if now.files >= found.files:
                return now
            found = now
        return found


@contextlib.contextmanager
def soak_disk(folder: Path, size_bytes: int) -> Iterator[tuple[Path, SmallDisk | None]]:
    """Where the data lies: on a disk that can be filled, if there can be one."""
    folder.mkdir()
    if not can_mount():
        yield folder, None
        return
    with small_disk(folder, size_bytes) as disk:
        yield folder, disk


def soak(folder: Path, seconds: float, seed: int) -> tuple[Report, Growth]:
    with soak_disk(folder / "disk", DISK_BYTES + int(seconds * DISK_BYTES_A_SECOND)) as (data, disk):
        broker = SoakBroker(data / "broker")
        broker.start()
        try:
            run = SoakRun(broker, folder, seed, disk)
            report = run.execute(seconds * 0.6)
            return report, run.growth(seconds * 0.4)
        finally:
            broker.kill()
            broker.proxy.close()
