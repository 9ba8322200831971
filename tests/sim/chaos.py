"""Faults by chance: what happens to brokers, disks and connections until somebody puts an end to it."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random

from ottla.replica.partition import Partition
from ottla.testing.files import Effect
from ottla.testing.simulation import store
from ottla.testing.simulation.broker_machine import BrokerMachine
from ottla.testing.simulation.machine import Machine
from ottla.testing.simulation.simulation import Simulation

MOST_DOWN_SECONDS = 2.0
MOST_BLOCKED_SECONDS = 4.0
MOST_PAUSE_SECONDS = 3.0
MOST_SLOW_SECONDS = 2.0
MOST_CLOCK_JUMP_MS = 600_000
LAST_OPERATION = 150  # of a disk, at which a crash may be armed
LITTLE_ROOM_BYTES = 2_000


class Chaos:
    """`counts` says how often each fault happened."""

    _last_operation = LAST_OPERATION

    def __init__(self, simulation: Simulation, brokers: Sequence[BrokerMachine], mean_seconds: float = 0.7) -> None:
        self._simulation = simulation
        self._brokers = list(brokers)
        self._random = Random(f"chaos {simulation.seed}")
        self._mean_seconds = mean_seconds
        self._is_over = False
        self._doomed: list[BrokerMachine] = []  # that are to be killed in a while
        self.counts: dict[str, int] = {}
        self._faults: list[Callable[[BrokerMachine], None]] = [
            self._kill, self._kill, self._stop, self._cut, self._cut, self._block, self._pause, self._jump_clock,
            self._fill_disk, self._fail_disk, self._slow_disk, *self._more_faults(),
        ]  # fmt: skip
        if all(broker.syncs for broker in brokers):
            self._faults += [self._lose_power, self._crash_within, self._crash_within]
        self._next()

    def _more_faults(self) -> list[Callable[[BrokerMachine], None]]:
        return []

    def _may_happen(self, _fault: Callable[[BrokerMachine], None], _broker: BrokerMachine) -> bool:
        return True

    def _next(self) -> None:
        self._simulation.timeline.after(self._random.expovariate(1 / self._mean_seconds), self._happen)

    def _happen(self) -> None:
        if self._is_over:
            return
        fault, broker = self._random.choice(self._faults), self._random.choice(self._brokers)
        if broker.is_up and self._may_happen(fault, broker):
            name = fault.__name__.strip("_")
            self.counts[name] = self.counts.get(name, 0) + 1
            fault(broker)
        self._next()

    def end(self) -> None:
        """All is well from now on."""
        self._is_over = True
        self._simulation.note("the faults are over")
        self._simulation.network.unblock_all()
        for broker in self._brokers:
            broker.files.capacity_bytes = None
            broker.files.disarm()
            if broker in self._doomed or (
                broker.is_up
                and broker.broker.logs.logs
                and any(log.failure is not None for log in broker.broker.logs.logs.values())
            ):
                broker.kill()  # an administrator does that
            self._simulation.timeline.after(MOST_DOWN_SECONDS, broker.start)

    # Processes and machines

    def _kill(self, broker: BrokerMachine) -> None:
        broker.kill()
        self._start_later(broker)

    def _kill_later(self, broker: BrokerMachine, seconds: float) -> None:
        """Or when the faults end, if that is before."""
        self._doomed.append(broker)

        def kill() -> None:
            if not self._is_over:
                self._doomed.remove(broker)
                self._kill(broker)

        self._simulation.timeline.after(seconds, kill)

    def _stop(self, broker: BrokerMachine) -> None:
        if not broker.is_paused:
            broker.stop()
            self._start_later(broker, self._random.uniform(0, 4 * MOST_DOWN_SECONDS))

    def _lose_power(self, broker: BrokerMachine) -> None:
        broker.lose_power()
        self._start_later(broker)

    def _crash_within(self, broker: BrokerMachine) -> None:
        """In the middle of a round, at one of the next operations of its disk."""
        number = broker.files.operation_count + self._random.randint(1, self._last_operation)
        broker.files.arm(number, self._random.choice([Effect.CRASH, Effect.TEAR_AND_CRASH]))
        self._start_later(broker, self._random.uniform(0, 2 * MOST_DOWN_SECONDS))

    def _start_later(self, broker: BrokerMachine, seconds: float | None = None) -> None:
        """Unless the faults end before: that starts all of them."""
        seconds = self._random.uniform(0, MOST_DOWN_SECONDS) if seconds is None else seconds
        was_over = self._is_over
        self._simulation.timeline.after(seconds, lambda: broker.start() if self._is_over == was_over else None)

    def _pause(self, broker: BrokerMachine) -> None:
        broker.pause(self._random.uniform(0, MOST_PAUSE_SECONDS))

    def _jump_clock(self, broker: BrokerMachine) -> None:
        broker.jump_clock(self._random.randint(-MOST_CLOCK_JUMP_MS, MOST_CLOCK_JUMP_MS))

    # The network

    def _cut(self, broker: BrokerMachine) -> None:
        network = self._simulation.network
        for connection in network.connections(broker.address):
            if self._random.random() < 0.5:
                network.cut(connection)
        self._simulation.note(f"connections of {broker.address} are cut")

    def _block(self, broker: BrokerMachine) -> None:
        network, seconds = self._simulation.network, self._random.uniform(0, MOST_BLOCKED_SECONDS)
        others = [address for address in self._addresses() if address != broker.address]
        others = self._random.sample(others, self._random.randint(1, len(others)))
        there, back = self._random.choice([(True, True), (True, False), (False, True)])
        ways = [(broker.address, other) for other in others] * there + [
            (other, broker.address) for other in others
        ] * back
        for way in ways:
            network.block(*way)
            self._simulation.timeline.after(seconds, lambda way=way: network.unblock(*way))  # type: ignore[misc]
        self._simulation.note(f"blocked for {seconds:.3f} s: {ways}")

    def _addresses(self) -> list[str]:
        return list(self._simulation.network.machines)

    # Disks

    def _fill_disk(self, broker: BrokerMachine) -> None:
        files = broker.files
        files.capacity_bytes = files.used_bytes + self._random.randint(0, LITTLE_ROOM_BYTES)
        self._simulation.note(f"the disk of {broker.address} is full")
        self._simulation.timeline.after(self._random.uniform(0, 2.0), lambda: self._empty_disk(broker))

    def _empty_disk(self, broker: BrokerMachine) -> None:
        broker.files.capacity_bytes = None
        self._simulation.note(f"the disk of {broker.address} has room")

    def _slow_disk(self, broker: BrokerMachine) -> None:
        broker.slow_disk(self._random.uniform(0, MOST_SLOW_SECONDS))

    def _fail_disk(self, broker: BrokerMachine) -> None:
        """One operation fails. What had to fail for it comes back with the next start."""
        number = broker.files.operation_count + self._random.randint(1, LAST_OPERATION)
        broker.files.arm(number, self._random.choice([Effect.FAIL, Effect.TEAR]), errno.EIO)
        self._simulation.note(f"the disk of {broker.address} fails at operation {number}")
        self._kill_later(broker, self._random.uniform(0, 3.0))


class ClusterChaos(Chaos):
    """And what happens only where there are several brokers and a store between them.

    Some of it happens when it is worst: while the controller decides on who is in sync, or has just done so.
    """

    _last_operation = 10  # soon, while all are in sync
    _ambush_odds = 0.03

    def __init__(self, simulation: Simulation, brokers: Sequence[BrokerMachine], mean_seconds: float = 0.7) -> None:
        super().__init__(simulation, brokers, mean_seconds)
        self._in_sync: dict[Partition, tuple[frozenset[int], frozenset[int] | None]] = {}
        simulation.checks.append(self._lie_in_wait)
        if self._brokers[0].syncs and self._random.random() < 0.4:  # early, while all are in sync
            broker, seconds = self._random.choice(self._brokers), self._random.uniform(0, 1.0)
            simulation.timeline.after(seconds, lambda: self._lose_disk_soon(broker))

    def _lie_in_wait(self, machine: Machine) -> None:
        if self._is_over or not isinstance(machine, BrokerMachine) or not machine.is_serving:
            return
        for topic in machine.broker.topics.by_name.values():
            for partition in topic.partitions:
                found = partition.machine.in_sync, partition.machine.proposed
                if partition.is_leader and self._in_sync.get(partition) != found:
                    self._in_sync[partition] = found
                    if self._random.random() < self._ambush_odds:
                        self._simulation.timeline.after(0, lambda: self._ambush(machine))

    def _ambush(self, leader: BrokerMachine) -> None:
        """Who leads is cut off from some of the others, and is gone before it can hear from them."""
        if not leader.is_up or self._is_over:
            return
        self.counts["ambush"] = self.counts.get("ambush", 0) + 1
        self._block(self._random.choice([leader, *self._brokers]))
        seconds = self._random.choice([0.0, self._random.uniform(0, 0.05), self._random.uniform(0, 2.0)])
        self._kill_later(leader, seconds)

    def _more_faults(self) -> list[Callable[[BrokerMachine], None]]:
        dark = self._lose_all_power if self._brokers[0].syncs else self._lose_memory
        return [self._expire, self._split, self._block, self._pause, dark, self._lose_disk]

    def _may_happen(self, fault: Callable[[BrokerMachine], None], _broker: BrokerMachine) -> bool:
        """Where a machine loses what was acknowledged, the replicas have it: all of them were in sync."""
        if fault not in (self._fail_disk, self._lose_memory, self._lose_disk):
            return True
        return all(each.is_serving and not each.files.has_faults for each in self._brokers) and all(
            len(partition.in_sync) == len(self._brokers)
            for broker in self._brokers
            for topic in broker.broker.topics.by_name.values()
            for partition in topic.partitions
        )

    def _addresses(self) -> list[str]:
        return [*super()._addresses(), store.ADDRESS]

    def _expire(self, broker: BrokerMachine) -> None:
        self._simulation.store.expire(broker)

    def _lose_all_power(self, _broker: BrokerMachine) -> None:
        """What was acknowledged is on all disks that count."""
        for broker in self._brokers:
            self._lose_power(broker)

    def _lose_memory(self, broker: BrokerMachine) -> None:
        """A machine is back without what it had not synced, before anybody has noticed that it was gone."""
        broker.lose_power()
        self._start_later(broker, self._random.choice([0.0, 0.0, 0.01, 1.0]))

    def _lose_disk(self, broker: BrokerMachine) -> None:
        """For good; and where all that is acknowledged is on the disks, maybe with the power of all."""
        if broker.syncs and self._random.random() < 0.5:
            self._lose_disk_soon(broker)
        else:
            broker.lose_disk()
            self._start_later(broker)

    def _lose_disk_soon(self, broker: BrokerMachine) -> None:
        """While the disks of the others are slow."""
        others = [each for each in self._brokers if each is not broker]
        for each in others:
            each.slow_disk(self._random.uniform(0, MOST_SLOW_SECONDS))
        seconds = self._random.uniform(0, MOST_SLOW_SECONDS / 2)
        self._simulation.timeline.after(seconds, lambda: self._lose_disk_and_power(broker, others))

    def _lose_disk_and_power(self, broker: BrokerMachine, others: Sequence[BrokerMachine]) -> None:
        if not self._is_over and self._may_happen(self._lose_disk, broker):
            broker.lose_disk()
            for each in (broker, *others):
                self._lose_power(each)

    def _split(self, broker: BrokerMachine) -> None:
        """A broker alone, or with the store or with clients on its side; nothing passes between the two."""
        network, seconds = self._simulation.network, self._random.uniform(0, MOST_BLOCKED_SECONDS)
        there = [address for address in self._addresses() if address != broker.address]
        here = [broker.address, *(there.pop() for _ in range(self._random.choice([0, 0, 1])))]
        for one in here:
            for other in there:
                for way in ((one, other), (other, one)):
                    network.block(*way)
                    self._simulation.timeline.after(seconds, lambda way=way: network.unblock(*way))  # type: ignore[misc]
        self._simulation.note(f"{here} are cut off for {seconds:.3f} s")
