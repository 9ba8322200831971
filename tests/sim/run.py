"""A cluster with producers and a group through its faults, and what is asked of it at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.testing.simulation.broker_machine import PORT, BrokerMachine
from ottla.testing.simulation.simulation import Simulation
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.checker.history import Place
from tests.sim.chaos import Chaos
from tests.sim.client import Client, Endpoint, Work
from tests.sim.consumer import Member, Reader
from tests.sim.invariants import Invariants
from tests.sim.producer import Producer
from tests.sim.story import Story

TOPIC, GROUP = "t", "g"
PARTITIONS = 2
PLACES = [Place(TOPIC, partition) for partition in range(PARTITIONS)]
PATIENCE_SECONDS = 60.0


class Run:
    def __init__(self, simulation: Simulation, brokers: Sequence[BrokerMachine]) -> None:
        self._simulation = simulation
        self._brokers = list(brokers)
        self._story = Story(simulation)
        self._invariants = Invariants(simulation)
        bootstrap = [Endpoint(broker.address, PORT) for broker in brokers]
        version = simulation.random.choice([1, 2])
        machines = [simulation.add_machine(f"10.0.1.{number}") for number in range(1, 5)]
        self._plain = Producer(machines[0], bootstrap, self._story, "plain", places=PLACES)
        self._writer = Producer(machines[1], bootstrap, self._story, "writer", places=PLACES, transactions=version)
        self._member = Member(machines[2], bootstrap, self._story, "member", group=GROUP, topic=TOPIC)
        self._reader = Reader(machines[3], bootstrap, self._story, "reader")
        self._clients: list[Client] = [self._plain, self._writer, self._member, self._reader]

    def go(self, chaos_seconds: float, make_chaos: Callable[[], Chaos]) -> None:
        for broker in self._brokers:
            broker.start()
        self._wait("the brokers start", lambda: all(broker.is_serving for broker in self._brokers))
        self._reader.start(create_topic(self._reader, len(self._brokers)))
        self._wait("the topic is created", lambda: self._reader.running == 0)
        self._plain.start(self._plain.run())
        self._writer.start(self._writer.run())
        self._member.start(self._member.run())
        chaos = make_chaos()
        self._simulation.run_for(chaos_seconds)
        chaos.end()
        self._wait_for_progress()
        for client in self._clients:
            client.is_wanted = False
        self._wait("all clients come to an end", lambda: not any(client.running for client in self._clients))
        self._reader.start(self._reader.read_all(PLACES))
        self._wait("everything is read", lambda: self._reader.running == 0)
        wrong = [text for client in self._clients for text in client.wrong]
        assert not wrong, f"{wrong}\n{self._simulation.story()}"
        self._story.check()
        self._look_for_leftovers()

    def _wait_for_progress(self) -> None:
        """Whatever happened: who goes on trying succeeds when all is well."""
        plain, writer = self._plain.done, self._writer.done
        self._wait("the producers go on", lambda: self._plain.done > plain + 1 and self._writer.done > writer + 1)
        wanted = {place: self._invariants.committed_end(place) for place in PLACES}
        self._wait(
            "the group goes on", lambda: all(self._member.passed.get(place, 0) >= end for place, end in wanted.items())
        )

    def _wait(self, what: str, is_done: Callable[[], bool]) -> None:
        done = self._simulation.run_until(is_done, PATIENCE_SECONDS)
        assert done, f"not within {PATIENCE_SECONDS} s: {what}\n{self._simulation.story()}"

    def _look_for_leftovers(self) -> None:
        for client in self._clients:
            client.close()
        self._simulation.run_for(5.0)
        for broker in self._brokers:
            left = broker.leftovers([client.machine.address for client in self._clients])
            assert not left, f"{broker.address}: {left}\n{self._simulation.story()}"
        for broker in self._brokers:
            broker.stop()
            self._wait("a broker stops", lambda: not broker.is_up)  # noqa: B023


def create_topic(client: Client, replication_factor: int) -> Work[None]:
    asked = CreatableTopic(
        name=TOPIC, num_partitions=PARTITIONS, replication_factor=replication_factor, assignments=[], configs=[]
    )
    answer = yield from client.ask_any(CreateTopicsRequest(topics=[asked]), 7)
    assert answer.topics[0].error_code == 0, answer
