"""A run: clients at work on a cluster to which everything happens; then all that is there is read, and compared."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.chaos.cluster import BROKERS, ChaosCluster, chaos_cluster
from tests.chaos.faults import Chaos
from tests.checker.check import Anomaly, Kind
from tests.checker.clients import INPUT, OUTPUT, PARTITIONS, TABLE
from tests.checker.run import ROLES, TOPICS, Report, Run

CLIENTS = "tests.chaos.clients"
CHAOS_ROLES = ROLES | {"mover": 1}
DISK_BYTES = 256 << 20
DISK_BYTES_A_SECOND = 1 << 20  # that it is longer
STEP_S = 0.05
CLIENT_LIFE_S = (1.0, 6.0)
"""Of one of them, until one is killed."""
IN_SYNC_S = 180.0


class ChaosRun(Run):
    replicas = 3
    # A replica that is away for longer never hears of a deletion that others have forgotten, as with Kafka.
    topics: Mapping[str, dict[str, str]] = TOPICS | {TABLE: TOPICS[TABLE] | {"delete.retention.ms": "300000"}}

    def __init__(self, cluster: ChaosCluster, folder: Path, seed: int) -> None:
        super().__init__(cluster, folder, seed, clients=(CLIENTS,), roles=CHAOS_ROLES)
        self._cluster = cluster
        self._chaos = Chaos(cluster, self._random)

    def execute(self, seconds: float) -> Report:
        report = super().execute(seconds)
        self._cluster.terminate()
        complaints = self._cluster.complaints.splitlines() + self._chaos.troubles
        anomalies = [*report.anomalies, *self._differences()]
        return report._replace(anomalies=anomalies, complaints=complaints, kill_counts=self._kill_counts)

    def _disturb(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        kill_client_at = end
        while time.monotonic() < end:
            self._chaos.step()
            if time.monotonic() >= kill_client_at:
                victim = self._random.choice(self._clients)
                victim.kill()
                self._kill_counts[victim.role] += 1
            if kill_client_at <= time.monotonic() or kill_client_at == end:
                kill_client_at = time.monotonic() + self._random.uniform(*CLIENT_LIFE_S)
            self._keep_alive(self._clients)
            time.sleep(STEP_S)
        self._kill_counts += self._chaos.counts

    def _settle(self) -> None:
        """All is well again; that must show before the clients are asked to come to an end."""
        self._chaos.end_all()
        self._chaos.tell("all is well")
        movers = [client for client in self._clients if client.role == "mover"]
        for client in movers:
            client.stop()
            self._clients.remove(client)
        deadline = time.monotonic() + IN_SYNC_S
        while behind := self._cluster.behind():
            self._chaos.revive()
            self._keep_alive(self._clients)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not in sync when all is well: {behind}")
            time.sleep(STEP_S)
        self._chaos.tell("all replicas are in sync")
        super()._settle()
        self._chaos.tell("all is worked off")

    def _differences(self) -> Iterator[Anomaly]:
        """Between the replicas, byte for byte. Compaction is for each of them to do when it likes."""
        for topic in (INPUT, OUTPUT):
            for partition in range(PARTITIONS):
                copies = {
                    broker.node_id: content
                    for broker in self._cluster.brokers.values()
                    if (content := _content(broker.process.data_folders, f"{topic}-{partition}"))
                }
                if len(set(copies.values())) > 1:
                    sizes = ", ".join(f"broker {node_id}: {len(content)} bytes" for node_id, content in copies.items())
                    yield Anomaly(Kind.REPLICAS_DIFFER, f"{topic}-{partition} ({sizes})")


def _content(folders: list[Path], name: str) -> bytes:
    """All segments of a log, one behind the other; nothing where there is no such log."""
    return b"".join(file.read_bytes() for folder in folders for file in sorted((folder / name).glob("*.log")))


def run_chaos(
    folder: Path, seconds: float, seed: int, store: str, *, has_namespaces: bool, mistake: str | None = None
) -> Report:
    disk_bytes = DISK_BYTES + int(seconds * DISK_BYTES_A_SECOND)
    with chaos_cluster(folder, store, disk_bytes, has_namespaces=has_namespaces, mistake=mistake) as cluster:
        try:
            report = ChaosRun(cluster, folder, seed).execute(seconds)
        except BaseException:
            _keep(folder)
            raise
        if report.anomalies:
            _keep(folder)
        return report


def _keep(folder: Path) -> None:
    """The disks go with the program: what is on them stays to be looked at."""
    for node_id in range(1, BROKERS + 1):
        shutil.copytree(folder / f"disk-{node_id}", folder / f"kept-{node_id}", ignore=shutil.ignore_patterns("filler"))
