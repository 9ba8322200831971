"""Several real brokers inside the process of a test, each on a thread of its own, that replicate.

with ottla.testing.cluster(brokers=3) as cluster:
    cluster.topic("orders", partitions=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    cluster.kill(cluster.leader("orders"))  # the others go on
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ottla.broker.broker import Broker
from ottla.replica.partition import Partition
from ottla.testing.local_broker import LOOK_AGAIN_SECONDS, QUICK_SETTINGS, LocalBroker

STORE = "cluster.sqlite"
MOST_REPLICAS = 3
# A test that pauses a broker waits until the others believe it.
QUICK_CLUSTER_SETTINGS = QUICK_SETTINGS | {"broker.session.timeout.ms": "3000"}


class LocalCluster:
    """Running brokers, by their numbers from 1 on: `cluster[2]` is a LocalBroker."""

    def __init__(
        self,
        folder: str,
        brokers: int = 3,
        *,
        durability: str = "page-cache",
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] = (),
    ) -> None:
        """`settings`: those of all brokers, by Kafka's names. `racks`: of the brokers in turn."""
        self.folder = folder
        self.brokers: dict[int, LocalBroker] = {}
        replicas = min(brokers, MOST_REPLICAS)
        common = {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
            "transaction.state.log.min.isr": max(1, replicas - 1),
        } | dict(settings or {})
        try:
            for node_id in range(1, brokers + 1):
                data = Path(folder, f"broker-{node_id}")
                data.mkdir(exist_ok=True)
                own: dict[str, object] = {"node.id": node_id}
                if racks:
                    own["broker.rack"] = racks[(node_id - 1) % len(racks)]
                self.brokers[node_id] = LocalBroker(
                    str(data), durability=durability, settings=common | own, store=f"local:{folder}/{STORE}"
                )
        except BaseException:
            self.abandon()
            raise

    def __getitem__(self, node_id: int) -> LocalBroker:
        return self.brokers[node_id]

    def __iter__(self) -> Iterator[LocalBroker]:
        return iter(self.brokers.values())

    def __len__(self) -> int:
        return len(self.brokers)

    def __repr__(self) -> str:
        return f"<LocalCluster on {self.bootstrap}>"

    @property
    def bootstrap(self) -> str:
        """What clients call `bootstrap.servers`: all brokers, also those that are down."""
        return ",".join(broker.bootstrap for broker in self)

    # Who does what

    @property
    def controller(self) -> int:
        """The number of the broker that decides."""
        found: list[int] = []

        def is_decided() -> bool:
            found[:] = [
                node_id for node_id, broker in self._answering() if broker.call(lambda b: b.membership.is_controller)
            ]
            return len(found) == 1

        self._wait_until(is_decided, 30.0, "no broker is the controller")
        return found[0]

    def leader(self, topic: str, partition: int = 0) -> int:
        """The number of the broker that leads a partition, as the controller knows it; -1: none does."""
        return self._state(topic, partition)[0]

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The numbers of the brokers that have all that is acknowledged."""
        return self._state(topic, partition)[1]

    def _state(self, topic: str, partition: int) -> tuple[int, list[int]]:
        def look(broker: Broker) -> tuple[int, list[int]]:
            states = broker.membership.cluster.states.get(topic)
            if states is None:
                raise ValueError(f"there is no topic {topic!r}; there are {sorted(broker.membership.cluster.states)}")
            return states[partition].leader_id, sorted(states[partition].in_sync)

        return self[self.controller].call(look)

    def wait_for_leader(self, topic: str, partition: int = 0, *, within: float = 30.0) -> int:
        """Until a broker that is up leads a partition; its number."""
        found: list[int] = []

        def is_led() -> bool:
            found[:] = [self.leader(topic, partition)]
            return found[0] in dict(self._answering())

        self._wait_until(is_led, within, f"no broker that is up leads {topic}-{partition}")
        return found[0]

    def wait_until_in_sync(self, *, within: float = 30.0) -> None:
        """Until every replica of every partition is in sync, and shows all that its leader has now.

        AssertionError tells which are not.
        """
        behind: list[str] = []

        def is_so() -> bool:
            behind[:] = self[self.controller].call(_behind)
            return not behind

        def show_all() -> bool:
            behind[:] = [
                f"{name} of broker {node_id}"
                for node_id, broker in self._answering()
                for name, end in broker.call(_high_watermarks).items()
                if end < ends.get(name, 0)
            ]
            return not behind

        deadline = time.monotonic() + within
        self._wait_until(is_so, within, lambda: f"not in sync: {', '.join(behind)}")
        ends = {name: end for _, broker in self._answering() for name, end in broker.call(_ends_of_led).items()}
        self._wait_until(show_all, deadline - time.monotonic(), lambda: f"not in sync: {', '.join(behind)}")

    def topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> str:
        """Create a topic, known to all brokers that are up when this returns; its name, to be used in the same line."""
        self[self.controller].topic(name, partitions=partitions, replication=replication or -1, config=config)
        for _, broker in self._answering():
            known = lambda broker=broker: broker.call(lambda b: name in b.membership.cluster.states)  # noqa: E731
            self._wait_until(known, 30.0, f"{broker!r} does not know {name}")
        return name

    # What can happen to brokers

    def kill(self, node_id: int) -> None:
        """As kill -9: connections are closed and the port is refused, nothing is written any more."""
        self[node_id].kill()

    def stop(self, node_id: int) -> None:
        """In good order: others lead what it led, before it goes."""
        self[node_id].stop()

    def start(self, node_id: int) -> None:
        """Again, after `kill` or `stop`, with the same data and on the same port."""
        self[node_id].start()

    def restart(self, node_id: int, *, kill: bool = False) -> None:
        self[node_id].restart(kill=kill)

    def pause(self, node_id: int) -> None:
        """As a process that is stopped: connections stay, nothing is answered until `resume`."""
        self[node_id].pause()

    def resume(self, node_id: int) -> None:
        self[node_id].resume()

    def _answering(self) -> list[tuple[int, LocalBroker]]:
        """Those that are up and not paused."""
        return [(node_id, broker) for node_id, broker in self.brokers.items() if broker.is_up and not broker.is_paused]

    def close(self) -> None:
        """Stop all that are up, in good order."""
        for broker in reversed(list(self)):
            broker.stop()

    def abandon(self) -> None:
        """End all at once, and leave the data as it is."""
        for broker in self:
            broker.abandon()

    @staticmethod
    def _wait_until(is_so: Callable[[], bool], within: float, otherwise: str | Callable[[], str]) -> None:
        deadline = time.monotonic() + within
        while not is_so():
            if time.monotonic() > deadline:
                raise AssertionError(otherwise if isinstance(otherwise, str) else otherwise())
            time.sleep(LOOK_AGAIN_SECONDS)


def _behind(broker: Broker) -> list[str]:
    cluster = broker.membership.cluster
    return [
        f"{name}-{index} (only {', '.join(map(str, state.in_sync))})"
        for name, states in cluster.states.items()
        for index, state in enumerate(states)
        if len(state.in_sync) < len(cluster.topics[name].replicas[index])
    ]


def _ends_of_led(broker: Broker) -> dict[str, int]:
    return {each.name: each.log.end_offset for each in _replicas(broker) if each.is_leader}


def _high_watermarks(broker: Broker) -> dict[str, int]:
    return {each.name: each.machine.high_watermark for each in _replicas(broker)}


def _replicas(broker: Broker) -> list[Partition]:
    return [partition for topic in broker.topics for partition in topic.partitions]


@contextmanager
def cluster(
    folder: str | None = None,
    *,
    brokers: int = 3,
    durability: str = "page-cache",
    settings: Mapping[str, object] | None = None,
    racks: Sequence[str] = (),
) -> Iterator[LocalCluster]:
    """Brokers that listen on loopback; without a folder their data is in one that is removed at the end.

    `settings` are those of all brokers, by Kafka's names, over those that make them quick.
    """
    with ExitStack() as stack:
        data = folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-cluster-"))
        all_settings = QUICK_CLUSTER_SETTINGS | dict(settings or {})
        started = LocalCluster(data, brokers, durability=durability, settings=all_settings, racks=racks)
        stack.callback(started.close if folder else started.abandon)
        yield started
