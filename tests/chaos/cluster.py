"""Three brokers and what they stand on: disks, a network and a store, each of which can fail."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.metadata import MetadataResponse
from tests.apache_kafka.harness import free_ports
from tests.chaos.network import Machine, Network
from tests.chaos.proxied_broker import NONE
from tests.chaos.proxies import ProxyNetwork
from tests.cluster.processes import BrokerProcess
from tests.compat.killable import SETTINGS, Disturbed
from tests.conformance.connection import Connection
from tests.conformance.requests import metadata
from tests.faults.small_disk import SmallDisk, small_disk
from tests.zookeeper.servers import ZookeeperServers

BROKERS = 3
PORT = 9092
SESSION_S = 3.0
CHAOS_SETTINGS = {
    **SETTINGS,
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "broker.session.timeout.ms": str(int(SESSION_S * 1000)),
    "replica.lag.time.max.ms": "2000",
    "leader.imbalance.check.interval.seconds": "5",
}
"""Short times: what a fault brings about shall come before the fault is over, now and then."""
STORE_BYTES = 64 << 20
ASK_S = 1.0
METADATA_VERSION = 12
OWN_MISTAKES = (" ERROR ", "Traceback ")


class Broker:
    def __init__(self, process: BrokerProcess, machine: Machine, bootstrap: str, disk: SmallDisk | None) -> None:
        """`bootstrap`: where clients find it."""
        self.process = process
        self.machine = machine
        self.bootstrap = bootstrap
        self.disk = disk
        self.is_wanted = False  # whether it should be running

    @property
    def node_id(self) -> int:
        return self.process.node_id

    @property
    def name(self) -> str:
        return f"broker {self.node_id}"

    def begin(self) -> None:
        self.is_wanted = True
        self.process.begin()

    def kill(self) -> None:
        self.is_wanted = False
        self.process.kill()

    @property
    def gave_up_starting(self) -> bool:
        """Whether it ended because its store could not be reached in time, or not be written, as it should."""
        lines = self.process.output.read_text(errors="replace").splitlines()
        return bool(lines) and lines[-1].startswith("ottla: the store of the cluster cannot be used")

    def metadata(self, *topics: str) -> MetadataResponse | None:
        """What it says of the cluster; None if it does not answer in time."""
        request = metadata(*topics)
        with contextlib.suppress(OSError), contextlib.closing(Connection(self.process.address, ASK_S)) as connection:
            connection.send(encode_request(1, "chaos", request, METADATA_VERSION))
            answer = connection.receive(ASK_S)
            if isinstance(answer, bytes):
                response = decode_response(answer, request.api, METADATA_VERSION)[1]
                assert isinstance(response, MetadataResponse)
                return response
        return None


class ChaosCluster(Disturbed):
    def __init__(
        self,
        brokers: Sequence[Broker],
        network: Network | ProxyNetwork,
        zookeeper: ZookeeperServers | None,
        keepers: list[Machine],
        store_disk: SmallDisk | None,
    ) -> None:
        """`keepers`: the machines of ZooKeeper's servers. `store_disk`: of the local store."""
        self.brokers = {broker.node_id: broker for broker in brokers}
        self.network = network
        self.zookeeper = zookeeper
        self.keepers = keepers
        self.store_disk = store_disk
        self.bootstrap = ",".join(broker.bootstrap for broker in brokers)

    @property
    def address(self) -> tuple[str, int]:
        return self.brokers[1].process.address

    @property
    def complaints(self) -> str:
        """What the brokers took for mistakes of their own."""
        found = []
        for broker in self.brokers.values():
            lines = broker.process.output.read_text(errors="replace").splitlines()
            found += [f"{broker.name}: {line}" for line in lines if any(mark in line for mark in OWN_MISTAKES)]
        return "\n".join(found)

    def start(self) -> None:
        for broker in self.brokers.values():
            broker.begin()
        for broker in self.brokers.values():
            broker.process.await_start()

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()

    def terminate(self) -> None:
        """The last one leads all, and has nobody to hand it over to."""
        for broker in self.brokers.values():
            broker.is_wanted = False
            broker.process.stop()

    @property
    def controller_id(self) -> int:
        """-1 if nobody knows it."""
        for broker in self.brokers.values():
            if broker.process.is_running and (known := broker.metadata()) is not None and known.controller_id >= 0:
                return known.controller_id
        return -1

    def behind(self) -> str | None:
        """What is not as it is when all is well; None if all brokers say that each replica is in sync."""
        for broker in self.brokers.values():
            known = broker.metadata()
            if known is None:
                return f"{broker.name} does not answer"
            for topic in known.topics:
                for partition in topic.partitions:
                    if len(partition.isr_nodes) < len(partition.replica_nodes) or partition.leader_id < 0:
                        return f"{broker.name} says of {topic.name}-{partition.partition_index}: {partition}"
        return None


@contextlib.contextmanager
def chaos_cluster(
    folder: Path, store: str, disk_bytes: int, *, has_namespaces: bool, mistake: str | None = None
) -> Iterator[ChaosCluster]:
    """`store`: zookeeper or local. `has_namespaces`: this process is inside a network of its own.

    `mistake`: one that all brokers make on purpose.
    """
    with contextlib.ExitStack() as stack:
        network: Network | ProxyNetwork = Network() if has_namespaces else ProxyNetwork()
        stack.enter_context(network)
        places = [network.add_machine() for _ in range(BROKERS)]
        zookeeper, keepers, store_disk = None, list[Machine](), None
        if store == "local":
            store_disk = _disk(stack, folder / "store", STORE_BYTES, can_mount=has_namespaces)
        if store == "zookeeper":
            keepers = [network.add_machine() for _ in range(3)]
            zookeeper = ZookeeperServers(folder / "zookeeper", 3, [(each.host, each.prefix) for each in keepers])
            stack.enter_context(zookeeper)
        ports = [PORT] * BROKERS if has_namespaces else free_ports(BROKERS)
        outside = [network.reach(None, machine, port) for machine, port in zip(places, ports, strict=True)]
        brokers = []
        for node_id, (machine, port, host) in enumerate(zip(places, ports, outside, strict=True), 1):
            disk = _disk(stack, folder / f"disk-{node_id}", disk_bytes, can_mount=has_namespaces)
            address = f"local:{folder}/store/cluster.sqlite"
            if zookeeper is not None:
                ends = zip(keepers, zookeeper.ports, strict=True)
                hosts = [f"{network.reach(machine, keeper, at)}:{at}" for keeper, at in ends]
                address = f"zookeeper://{','.join(hosts)}/ottla"
            program: tuple[str, ...] = ("ottla",) if mistake is None else ("tests.chaos.broken_broker", mistake)
            if not has_namespaces:
                others = [entry for entry in zip(places, ports, outside, strict=True) if entry[0] is not machine]
                routes = [f"{theirs}={network.reach(machine, other, at)}" for other, at, theirs in others]
                program = ("tests.chaos.proxied_broker", ",".join(routes), mistake or NONE)
            process = BrokerProcess(
                folder / f"disk-{node_id}",
                address,
                node_id,
                (machine.host, port),
                CHAOS_SETTINGS | {"advertised.listeners": f"PLAINTEXT://{host}:{port}"},
                output=folder / f"broker-{node_id}.log",
                prefix=machine.prefix,
                program=program,
                log_level="info",
            )
            brokers.append(Broker(process, machine, f"{host}:{port}", disk))
        cluster = ChaosCluster(brokers, network, zookeeper, keepers, store_disk)
        stack.callback(cluster.kill)
        cluster.start()
        yield cluster


def _disk(stack: contextlib.ExitStack, folder: Path, size_bytes: int, *, can_mount: bool) -> SmallDisk | None:
    """One that can be filled, where there can be one that goes with the program."""
    folder.mkdir(parents=True)
    return stack.enter_context(small_disk(folder, size_bytes)) if can_mount else None
