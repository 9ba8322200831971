"""Three brokers and one producer, with trouble at the worst moments for who is in sync.

Small, so that many seeds can be run: the mistakes that can be made with in-sync sets need much chance to show. Whenever
the controller decides on one, or has just done so, its answer may not come, the copies of a follower may stop, and the
leader may be gone before it knows. Or the one that is to join loses what it had, before that is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.testing.simulation.broker_machine import PORT, BrokerMachine
from ottla.testing.simulation.machine import Machine
from ottla.testing.simulation.simulation import Simulation
from tests.sim import scenario_cluster
from tests.sim.chaos import ClusterChaos
from tests.sim.client import Endpoint
from tests.sim.consumer import Reader
from tests.sim.invariants import Invariants
from tests.sim.producer import Producer
from tests.sim.run import PATIENCE_SECONDS, PLACES, create_topic
from tests.sim.story import Story

CHAOS_SECONDS = 12.0
SETTINGS = scenario_cluster.SETTINGS | {"replica.lag.time.max.ms": "500", "broker.session.timeout.ms": "1000"}
MOST_AMBUSH_SECONDS = 1.5


class Ambushes(ClusterChaos):
    """Followers that fall behind and come back, and what happens when they do."""

    _ambush_odds = 0.6

    def __init__(self, simulation: Simulation, brokers: Sequence[BrokerMachine]) -> None:
        super().__init__(simulation, brokers, mean_seconds=0.8)
        self._faults = [self._fall_behind, self._fall_behind, self._fall_behind, self._kill]
        if not brokers[0].syncs:
            self._faults += [self._forget_unseen, self._forget_unseen, self._lose_memory]
            simulation.checks.append(self._look_at_proposals)
        self._is_deceiving = False

    def _fall_behind(self, broker: BrokerMachine) -> None:
        """One of the others gives it nothing for a while."""
        other = self._random.choice([each for each in self._brokers if each is not broker])
        self._block_ways([(other, broker)], self._random.uniform(0.6, 2.0))

    def _block_ways(self, ways: Sequence[tuple[Machine, Machine]], seconds: float) -> None:
        network = self._simulation.network
        for source, target in ways:
            way = source.address, target.address
            network.block(*way)
            self._simulation.timeline.after(seconds, lambda way=way: network.unblock(*way))  # type: ignore[misc]
        names = ", ".join(f"{source.address} to {target.address}" for source, target in ways)
        self._simulation.note(f"blocked for {seconds:.3f} s: {names}")

    def _ambush(self, leader: BrokerMachine) -> None:
        """Somebody joins, or leaves: its leader does not hear what is decided, nor from that one, and then is gone."""
        if not leader.is_serving or self._is_over:
            return
        others = [each for each in self._brokers if each is not leader]
        follower = self._random.choice(others)
        ways = [(follower, leader)]
        if not (follower.is_serving and follower.broker.membership.is_controller):
            ways.append((leader, follower))  # or it would not be asked at all
        ways += [(each, leader) for each in others if each.is_serving and each.broker.membership.is_controller]
        seconds = self._random.uniform(0.1, MOST_AMBUSH_SECONDS)
        self._block_ways(ways, seconds)
        self._kill_later(leader, self._random.uniform(seconds / 3, seconds))

    def _may_happen(self, fault: Callable[[BrokerMachine], None], broker: BrokerMachine) -> bool:
        return super()._may_happen(self._lose_memory if fault == self._forget_unseen else fault, broker)

    def _forget_unseen(self, broker: BrokerMachine) -> None:
        """A machine is back without what it had not synced, and leaders go by what it told them before."""
        leaders = [each for each in self._brokers if each is not broker and not each.broker.membership.is_controller]
        clients = [each for each in self._simulation.machines if not isinstance(each, BrokerMachine)]
        if not leaders:
            return
        leader, seconds = self._random.choice(leaders), MOST_AMBUSH_SECONDS
        self._block_ways([(broker, leader), (leader, broker), *((each, leader) for each in clients)], seconds)
        broker.lose_power()
        self._start_later(broker, 0.0)
        self._kill_later(leader, self._random.uniform(0.6, seconds))

    def _look_at_proposals(self, machine: Machine) -> None:
        """Somebody is proposed to join, and all others have what it may lose."""
        if self._is_over or self._is_deceiving or not isinstance(machine, BrokerMachine) or not machine.is_serving:
            return
        for topic in machine.broker.topics.by_name.values():
            for partition in topic.partitions:
                joining = (partition.machine.proposed or frozenset()) - partition.machine.in_sync
                if joining and self._random.random() < 0.5:
                    follower = self._brokers[min(joining) - 1]
                    self._is_deceiving = True
                    self._simulation.timeline.after(0, lambda: self._deceive(machine, follower))  # noqa: B023
                    return

    def _is_one_of_many(self, broker: BrokerMachine) -> bool:
        """Whether somebody else is in sync, too, wherever it is: then it may lose what it has."""
        in_sync = [
            partition.machine.in_sync
            for each in self._brokers
            if each.is_serving
            for topic in each.broker.topics.by_name.values()
            for partition in topic.partitions
            if partition.is_leader
        ]
        return all(members - {broker.broker.node_id} for members in in_sync)

    def _deceive(self, leader: BrokerMachine, follower: BrokerMachine) -> None:
        """One that is to join loses what it had, and is back before the controller hears that it is to join."""
        are_all_there = all(each.is_serving for each in self._brokers)
        [*controllers] = (each for each in self._brokers if are_all_there and each.broker.membership.is_controller)
        if self._is_over or controllers in ([], [leader], [follower]) or not self._is_one_of_many(follower):
            self._is_deceiving = False
            return
        seconds = self._random.choice([self._random.uniform(0.01, 0.1), self._random.uniform(0.1, 0.8)])
        self._block_ways([(leader, controllers[0])], seconds)
        if self._random.random() < 0.5:
            self._block_ways([(leader, follower)], seconds + 0.5)
        else:  # the leader hears that the other is back, and asks again
            network = self._simulation.network
            for connection in network.connections(leader.address):
                if controllers[0].address in (connection.near.host, connection.far.host):
                    network.cut(connection)

        def lose_power() -> None:  # when it is to join other partitions, too
            if follower.is_up and not self._is_over and self._is_one_of_many(follower):
                follower.lose_power()
                self._start_later(follower, 0.0)

        self._simulation.timeline.after(self._random.uniform(0, 0.03), lose_power)

        seconds += self._random.choice([0.01, self._random.uniform(0, 0.1)])
        self._kill_later(leader, seconds)
        self._simulation.timeline.after(seconds, self._deceived)

    def _deceived(self) -> None:
        self._is_deceiving = False


def run(seed: int) -> str:
    with Simulation(seed) as simulation:
        syncs = simulation.random.random() < 0.3
        simulation.store.outlives_processes = simulation.random.random() < 0.3
        settings = SETTINGS | (scenario_cluster.SLOW_COPIES if simulation.random.random() < 0.7 else {})
        brokers = [
            simulation.add_broker(f"10.0.0.{node_id}", settings | {"node.id": str(node_id)}, syncs=syncs)
            for node_id in range(1, scenario_cluster.BROKERS + 1)
        ]
        _run(simulation, brokers)
        return simulation.fingerprint


def _run(simulation: Simulation, brokers: Sequence[BrokerMachine]) -> None:
    story, _ = Story(simulation), Invariants(simulation)
    bootstrap = [Endpoint(broker.address, PORT) for broker in brokers]
    producer = Producer(simulation.add_machine("10.0.1.1"), bootstrap, story, "plain", places=PLACES)
    reader = Reader(simulation.add_machine("10.0.1.2"), bootstrap, story, "reader")

    def wait(what: str, is_done: bool) -> None:
        assert is_done, f"not within {PATIENCE_SECONDS} s: {what}\n{simulation.story()}"

    for broker in brokers:
        broker.start()
    is_up = simulation.run_until(lambda: all(broker.is_serving for broker in brokers), PATIENCE_SECONDS)
    wait("the brokers start", is_up)
    reader.start(create_topic(reader, len(brokers)))
    wait("the topic is created", simulation.run_until(lambda: reader.running == 0, PATIENCE_SECONDS))
    producer.start(producer.run())
    chaos = Ambushes(simulation, brokers)
    simulation.run_for(CHAOS_SECONDS)
    chaos.end()
    done = producer.done
    wait("the producer goes on", simulation.run_until(lambda: producer.done > done + 1, PATIENCE_SECONDS))
    producer.is_wanted = False
    wait("the producer ends", simulation.run_until(lambda: producer.running == 0, PATIENCE_SECONDS))
    reader.start(reader.read_all(PLACES))
    wait("everything is read", simulation.run_until(lambda: reader.running == 0, PATIENCE_SECONDS))
    assert not producer.wrong + reader.wrong, f"{producer.wrong + reader.wrong}\n{simulation.story()}"
    story.check()
