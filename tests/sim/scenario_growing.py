"""Three brokers, and a topic that grows in order twice through all their faults while it is written and read.

Every key is read in the order in which it was written, all that was acknowledged is read, and no parent has a key that
went behind its fence.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.records.growth import Phase
from ottla.records.placement import strays_among
from ottla.records.read import read_batches
from ottla.testing.simulation.broker_machine import PORT, BrokerMachine
from ottla.testing.simulation.simulation import Simulation
from tests.checker.history import Place
from tests.sim import run as plain_run
from tests.sim import scenario_cluster
from tests.sim.chaos import ClusterChaos
from tests.sim.client import Client, Endpoint, Work
from tests.sim.invariants import Invariants
from tests.sim.keyed import Grower, KeyedMember, KeyedProducer
from tests.sim.story import Story

TOPIC, GROUP = plain_run.TOPIC, plain_run.GROUP
TOTALS = (4, 8)
CHAOS_SECONDS = 8.0
PATIENCE_SECONDS = 120.0
READ_BYTES = 1 << 30


class Growing:
    def __init__(self, simulation: Simulation, brokers: list[BrokerMachine]) -> None:
        self._simulation = simulation
        self._brokers = brokers
        self._invariants = Invariants(simulation)
        story = Story(simulation)
        bootstrap = [Endpoint(broker.address, PORT) for broker in brokers]
        machines = [simulation.add_machine(f"10.0.1.{number}") for number in range(1, 6)]
        self._read: list[tuple[str, int, Place, int]] = []
        self._producers = [
            KeyedProducer(machine, bootstrap, story, f"p{number}", topic=TOPIC, keys=6)
            for number, machine in enumerate(machines[:2])
        ]
        self._members = [
            KeyedMember(machine, bootstrap, story, f"m{number}", group=GROUP, topic=TOPIC, read=self._read)
            for number, machine in enumerate(machines[2:4])
        ]
        self._grower = Grower(machines[4], bootstrap, story, "grower")
        self._clients: list[Client] = [*self._producers, *self._members, self._grower]

    def go(self) -> None:
        for broker in self._brokers:
            broker.start()
        self._wait("the brokers start", lambda: all(broker.is_serving for broker in self._brokers))
        self._grower.start(plain_run.create_topic(self._grower, len(self._brokers)))
        self._wait("the topic is created", lambda: self._grower.running == 0)
        for producer in self._producers:
            producer.start(producer.run())
        for member in self._members:
            member.start(member.run())
        chaos = ClusterChaos(self._simulation, self._brokers)
        self._grower.start(self._grow())
        self._simulation.run_for(CHAOS_SECONDS)
        chaos.end()
        self._wait("the topic has grown", self._has_grown)
        self._simulation.run_for(2.0)
        for producer in self._producers:
            producer.is_wanted = False
        self._wait("the producers end", lambda: not any(producer.running for producer in self._producers))
        self._wait("everything is read", self._is_all_read)
        for client in self._clients:
            client.is_wanted = False
        self._wait("the group ends", lambda: not any(client.running for client in self._clients))
        self._check_order()
        self._check_parents()
        for client in self._clients:
            client.close()

    def _grow(self) -> Work[None]:
        for total in TOTALS:
            yield from self._grower.sleep(self._grower.random.uniform(0.2, 2.5))
            yield from self._grower.grow(TOPIC, total, self._grower.random.choice([200, 600, 1500]))

    def _has_grown(self) -> bool:
        if self._grower.running:
            return False
        topics = [broker.broker.topics.by_name.get(TOPIC) for broker in self._brokers if broker.is_serving]
        return len(topics) == len(self._brokers) and all(
            topic is not None
            and topic.partition_count == TOTALS[-1]
            and all(growth.phase is Phase.OPEN for growth in topic.growths)
            for topic in topics
        )

    # At the end

    def _is_all_read(self) -> bool:
        read = {(key, number) for key, number, _, _ in self._read}
        return all(
            (key, number) in read
            for producer in self._producers
            for key, numbers in producer.acknowledged.items()
            for number in numbers
        )

    def _check_order(self) -> None:
        """What is read for the first time comes in order; it may be read again."""
        last: dict[str, int] = {}
        seen = {each for producer in self._producers for each in producer.failed}  # these may come late
        for key, number, place, offset in self._read:
            if (key, number) in seen:
                continue
            seen.add((key, number))
            if number < last.get(key, -1):
                self._fail(f"{key}: {number} at {offset} of {place} was read after {last[key]}")
            last[key] = number

    def _check_parents(self) -> None:
        for broker in self._brokers:
            topic = broker.broker.topics.by_name[TOPIC]
            for growth in topic.growths:
                for parent, fence in growth.fences.items():
                    partition = topic.replicas[parent]
                    if not partition.is_leader:
                        continue
                    found = partition.log.read(fence, READ_BYTES, partition.log.end_offset)
                    batches = [] if found is None else list(read_batches(found.read()))
                    keys = [record.key for batch in batches for record in batch.records() if record.offset >= fence]
                    if strays_among(keys, parent, growth.total, growth.partitioner):
                        self._fail(f"{partition.name} has keys that went behind its fence {fence}")

    def _wait(self, what: str, is_done: Callable[[], bool]) -> None:
        if not self._simulation.run_until(is_done, PATIENCE_SECONDS):
            self._fail(f"not within {PATIENCE_SECONDS} s: {what}")

    def _fail(self, what: str) -> None:
        raise AssertionError(f"{what}\n{self._simulation.story()}")


def run(seed: int) -> str:
    with Simulation(seed) as simulation:
        syncs = simulation.random.random() < 0.5
        simulation.store.outlives_processes = simulation.random.random() < 0.5
        brokers = [
            simulation.add_broker(
                f"10.0.0.{node_id}", scenario_cluster.SETTINGS | {"node.id": str(node_id)}, syncs=syncs
            )
            for node_id in range(1, scenario_cluster.BROKERS + 1)
        ]
        Growing(simulation, brokers).go()
        return simulation.fingerprint
