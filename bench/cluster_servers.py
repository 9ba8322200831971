"""The two clusters that are measured: three brokers each, seen from outside.

OTTLA_BENCH_STORE=zookeeper gives Ottla a real ZooKeeper server in place of a file.
"""

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.broker_servers import CLUSTER_ID, FIRST_WAIT, JAVA, Ottla, Server
from tests.apache_kafka.distribution import classpath
from tests.apache_kafka.harness import run_tool
from tests.zookeeper.servers import ZookeeperServers

NODES = (1, 2, 3)
SETTINGS = {
    FIRST_WAIT: "0",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}


class ServerCluster(ABC):
    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.members: dict[int, Server] = self.make_members()

    @abstractmethod
    def make_members(self) -> dict[int, Server]: ...

    @property
    def bootstrap(self) -> str:
        return ",".join(member.bootstrap for member in self.members.values())

    def start(self) -> None:
        for member in self.members.values():
            member.start()

    def stop(self) -> None:
        for member in self.members.values():
            member.stop()

    def close(self) -> None:
        self.stop()

    def cpu_seconds(self) -> float:
        return sum(member.cpu_seconds() for member in self.members.values())

    def memory_bytes(self) -> int:
        return sum(member.memory_bytes() for member in self.members.values())


class OttlaMember(Ottla):
    def __init__(self, folder: Path, node_id: int, store: str) -> None:
        self._options = ["--store", store, "--id", str(node_id)]
        for name, value in SETTINGS.items():
            self._options += ["--set", f"{name}={value}"]
        super().__init__(folder)

    def command(self) -> tuple[str, ...]:
        return *super().command(), *self._options


class OttlaCluster(ServerCluster):
    name = Ottla.name

    def make_members(self) -> dict[int, Server]:
        self._stack = contextlib.ExitStack()
        store = f"local:{self.folder}/cluster.sqlite"
        if os.environ.get("OTTLA_BENCH_STORE") == "zookeeper":
            servers = self._stack.enter_context(ZookeeperServers(self.folder / "zookeeper"))
            store = f"zookeeper://{servers.hosts}/bench"
        return {node_id: OttlaMember(self.folder / str(node_id), node_id, store) for node_id in NODES}

    def close(self) -> None:
        super().close()
        self._stack.close()


class KafkaMember(Server):
    """A broker that is a controller, too, with the settings it comes with."""

    name = "Apache Kafka"

    def format(self, node_id: int, voters: Sequence["KafkaMember"]) -> None:
        quorum = ",".join(
            f"{number}@127.0.0.1:{voter._other_port}" for number, voter in zip(NODES, voters, strict=True)
        )
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": quorum,
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self._other_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.folder / "data"),
            **SETTINGS,
        }
        self._properties = self.folder / "server.properties"
        self._properties.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        run_tool("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self._properties))

    def command(self) -> tuple[str, ...]:
        return *JAVA, "-cp", classpath(), "WatchedKafka", str(self._properties)


class KafkaCluster(ServerCluster):
    name = KafkaMember.name

    def make_members(self) -> dict[int, Server]:
        members = [KafkaMember(self.folder / str(node_id)) for node_id in NODES]
        for node_id, member in zip(NODES, members, strict=True):
            member.format(node_id, members)
        return dict(zip(NODES, members, strict=True))


@contextlib.contextmanager
def clusters(kinds: Sequence[type[ServerCluster]]) -> Iterator[list[ServerCluster]]:
    """One of each kind, prepared but not started, in a folder of their own."""
    with TemporaryDirectory(prefix="ottla-bench-", ignore_cleanup_errors=True) as folder:
        made: list[ServerCluster] = []
        try:
            made += [kind(Path(folder) / kind.__name__) for kind in kinds]
            yield made
        finally:
            for cluster in made:
                cluster.close()
