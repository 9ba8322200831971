"""What can happen to a cluster: each fault is a generator that does something, waits, and puts it right again.

It yields for how many seconds it waits. A fault that needs a broker, a server or a disk has it to itself.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import permutations

from tests.chaos.cluster import SESSION_S, Broker, ChaosCluster
from tests.faults.small_disk import SmallDisk
from tests.zookeeper.servers import ZookeeperServers

Fault = Iterator[float]
Chosen = tuple[str, Fault] | None
"""What it is called, and it; None where it cannot be now."""

LONGEST_S = 1.7 * SESSION_S
STORE = "the store"
ZOOKEEPER = "ZooKeeper"
LOOK_AGAIN_S = 0.1
START_S = 120.0
STOP_S = 60.0
IN_SYNC_S = 240.0
AT_ONCE = 2
PAUSE_S = (0.3, 3.0)


class Chaos:
    def __init__(self, cluster: ChaosCluster, chance: random.Random) -> None:
        self.counts: Counter[str] = Counter()
        self.troubles: list[str] = []
        """What should not have happened, though no client may have noticed."""
        self._cluster = cluster
        self._chance = chance
        self._running: list[tuple[float, Fault, frozenset[str]]] = []
        self._taken: set[str] = set()
        self._next_at = 0.0
        self._is_ending = False
        self._began = time.monotonic()
        self._kinds = self._possible()

    def _possible(self) -> list[Callable[[], Chosen]]:
        kinds: list[Callable[[], Chosen]] = [
            *(self._kill_one, self._kill_one, self._kill_one, self._kill_controller, self._kill_controller),
            *(self._kill_two, self._kill_all, self._pause_one, self._pause_controller, self._roll),
            *(self._cut_from_brokers, self._cut_pair, self._cut_off, self._cut_from_clients),
        ]
        if any(broker.disk for broker in self._cluster.brokers.values()):
            kinds += [self._fill_disk]
        if self._cluster.store_disk:
            kinds += [self._fill_store]
        if self._cluster.zookeeper:
            kinds += [self._kill_keeper, self._kill_keepers, self._pause_keeper]
            kinds += [self._expire_session, self._expire_session]
        return kinds

    # Time goes on

    def step(self) -> None:
        """Begin, go on with and end what is due."""
        now = time.monotonic()
        for entry in list(self._running):
            if entry[0] <= now:
                self._advance(entry)
        self.revive()
        if now >= self._next_at and len(self._running) < AT_ONCE and self._begin_any():
            self._next_at = time.monotonic() + self._chance.uniform(*PAUSE_S)

    def _advance(self, entry: tuple[float, Fault, frozenset[str]]) -> None:
        self._running.remove(entry)
        _, fault, taken = entry
        wait = next(fault, None)
        if wait is not None:
            self._running.append((time.monotonic() + wait, fault, taken))

    def _begin_any(self) -> bool:
        """Whether what was chosen is possible now."""
        self._taken = {name for _, _, taken in self._running for name in taken}
        before = set(self._taken)
        chosen = self._chance.choice(self._kinds)()
        if chosen is None:
            return False
        name, fault = chosen
        self.counts[name] += 1
        self.tell(f"{name} {sorted(self._taken - before)}")
        self._running.append((time.monotonic(), fault, frozenset(self._taken - before)))
        return True

    def end_all(self) -> None:
        """Let what is under way come to its end, sooner than it would."""
        self._is_ending = True
        deadline = time.monotonic() + 3 * (START_S + STOP_S + IN_SYNC_S)
        while self._running:
            for entry in list(self._running):
                self._advance(entry)
            self.revive()
            time.sleep(LOOK_AGAIN_S)
            if time.monotonic() > deadline:
                raise TimeoutError("a fault does not come to its end")

    def revive(self) -> None:
        """Start brokers again that nobody has ended."""
        for broker in self._cluster.brokers.values():
            if broker.is_wanted and not broker.process.is_running:
                if broker.gave_up_starting:
                    self.counts["start without a store"] += 1
                else:
                    self._trouble(f"{broker.name} ended by itself")
                broker.kill()
                broker.begin()

    def tell(self, what: str) -> None:
        print(f"{time.monotonic() - self._began:7.1f} s  {what}", flush=True)

    def _trouble(self, what: str) -> None:
        self.troubles.append(f"{time.monotonic() - self._began:.1f} s: {what}")
        self.tell(what)

    # Who is meant

    def _take(self, *brokers: Broker) -> bool:
        names = {broker.name for broker in brokers}
        if not brokers or names & self._taken:
            return False
        self._taken |= names
        return True

    def _any_broker(self) -> Broker | None:
        free = [broker for broker in self._cluster.brokers.values() if broker.name not in self._taken]
        if not free:
            return None
        chosen = self._chance.choice(free)
        self._take(chosen)
        return chosen

    def _controller(self) -> Broker | None:
        broker = self._cluster.brokers.get(self._cluster.controller_id)
        return broker if broker is not None and self._take(broker) else None

    def _any_time(self, longest_s: float = LONGEST_S) -> float:
        """Most are short."""
        return 0.1 + (longest_s - 0.1) * self._chance.random() ** 2

    # Brokers

    def _kill_one(self) -> Chosen:
        broker = self._any_broker()
        return None if broker is None else ("kill -9", self._killed(broker))

    def _kill_controller(self) -> Chosen:
        broker = self._controller()
        return None if broker is None else ("kill -9 of the controller", self._killed(broker))

    def _kill_two(self) -> Chosen:
        brokers = self._chance.sample(list(self._cluster.brokers.values()), 2)
        return ("kill -9 of two", self._killed(*brokers)) if self._take(*brokers) else None

    def _kill_all(self) -> Chosen:
        brokers = list(self._cluster.brokers.values())
        self._chance.shuffle(brokers)
        return ("kill -9 of all", self._killed(*brokers)) if self._take(*brokers) else None

    def _killed(self, *brokers: Broker) -> Fault:
        for broker in brokers:
            broker.kill()
        for broker in brokers:
            yield self._any_time()
            yield from self._started(broker)

    def _started(self, broker: Broker) -> Fault:
        broker.begin()
        deadline = time.monotonic() + START_S
        while not broker.process.starts_within(0):
            if not broker.process.is_running:
                return  # `revive` says so
            if time.monotonic() > deadline:
                self._trouble(f"{broker.name} does not start")
                return
            yield LOOK_AGAIN_S

    def _pause_one(self) -> Chosen:
        broker = self._any_broker()
        return None if broker is None else ("pause", self._paused(broker))

    def _pause_controller(self) -> Chosen:
        broker = self._controller()
        return None if broker is None else ("pause of the controller", self._paused(broker))

    def _paused(self, broker: Broker) -> Fault:
        if broker.process.is_running:
            broker.process.hold()
            yield self._any_time()
            broker.process.let_go()

    def _roll(self) -> Chosen:
        if not self._take(*self._cluster.brokers.values()):
            return None
        controller_id = self._cluster.controller_id
        order = sorted(self._cluster.brokers.values(), key=lambda broker: broker.node_id == controller_id)
        return "rolling restart", self._rolled(order)

    def _rolled(self, order: list[Broker]) -> Fault:
        yield from self._until_in_sync()
        for broker in order:
            if self._is_ending:
                return
            broker.is_wanted = False
            if broker.process.is_running:
                broker.process.send_signal(signal.SIGTERM)
            deadline = time.monotonic() + STOP_S
            while broker.process.is_running:
                if time.monotonic() > deadline:
                    self._trouble(f"{broker.name} does not stop")
                    break
                yield LOOK_AGAIN_S
            broker.kill()
            yield from self._started(broker)
            yield from self._until_in_sync()

    def _until_in_sync(self) -> Fault:
        deadline = time.monotonic() + IN_SYNC_S
        while not self._is_ending and (behind := self._cluster.behind()):
            if time.monotonic() > deadline:
                self._trouble(f"not in sync: {behind}")
                return
            yield LOOK_AGAIN_S

    def _fill_disk(self) -> Chosen:
        broker = self._any_broker()
        if broker is None or broker.disk is None:
            return None
        return "full disk", self._filled(broker.disk)

    def _fill_store(self) -> Chosen:
        assert self._cluster.store_disk is not None
        if STORE in self._taken:
            return None
        self._taken.add(STORE)
        return "full disk of the store", self._filled(self._cluster.store_disk)

    def _filled(self, disk: SmallDisk) -> Fault:
        disk.fill()
        yield self._any_time()
        disk.clear()

    # The network

    def _cut_off(self) -> Chosen:
        """From everybody."""
        broker = self._any_broker()
        if broker is None:
            return None
        others = self._other_hosts(broker) + [machine.host for machine in self._cluster.keepers]
        return "cut off", self._cut(broker, [*others, broker.machine.router_host])

    def _cut_from_brokers(self) -> Chosen:
        broker = self._any_broker()
        return (
            None if broker is None else ("cut off from the other brokers", self._cut(broker, self._other_hosts(broker)))
        )

    def _cut_from_clients(self) -> Chosen:
        broker = self._any_broker()
        if broker is None:
            return None
        # Only one way: what the router itself sends cannot be dropped.
        return "cut off from clients", self._cut(broker, [broker.machine.router_host])

    def _cut_pair(self) -> Chosen:
        """Both still reach the third; every other time only one direction is cut."""
        one, other = self._chance.choice(list(permutations(self._cluster.brokers.values(), 2)))
        if not self._take(one, other):
            return None
        both = self._chance.random() < 0.5
        name = "two cut off from each other" if both else "one way of a connection cut"
        return name, self._cut(one, [other.machine.host], is_both_ways=both)

    def _expire_session(self) -> Chosen:
        broker = self._any_broker()
        if broker is None:
            return None
        hosts = [machine.host for machine in self._cluster.keepers]
        return "session of ZooKeeper expired", self._cut(broker, hosts, SESSION_S + self._any_time())

    def _other_hosts(self, broker: Broker) -> list[str]:
        return [other.machine.host for other in self._cluster.brokers.values() if other is not broker]

    def _cut(
        self, broker: Broker, hosts: list[str], seconds: float | None = None, *, is_both_ways: bool = True
    ) -> Fault:
        network = self._cluster.network
        pairs = [(broker.machine.host, host) for host in hosts]
        pairs += [(host, broker.machine.host) for host in hosts if is_both_ways and host != broker.machine.router_host]
        for pair in pairs:
            network.cut(*pair)
        yield self._any_time() if seconds is None else seconds
        for pair in pairs:
            network.mend(*pair)

    # ZooKeeper

    def _take_keepers(self) -> bool:
        """One fault at a time, with a rest behind it: without ZooKeeper nothing is decided."""
        if ZOOKEEPER in self._taken:
            return False
        self._taken.add(ZOOKEEPER)
        return True

    def _kill_keeper(self) -> Chosen:
        index = self._chance.randrange(3)
        return ("kill -9 of a ZooKeeper server", self._keepers_killed([index])) if self._take_keepers() else None

    def _kill_keepers(self) -> Chosen:
        """No decision is possible, until two are back."""
        indexes = self._chance.sample(range(3), self._chance.choice((2, 3)))
        return ("kill -9 of most ZooKeeper servers", self._keepers_killed(indexes)) if self._take_keepers() else None

    def _keepers_killed(self, indexes: list[int]) -> Fault:
        zookeeper = self._zookeeper
        for index in indexes:
            zookeeper.kill(index)
        for index in indexes:
            yield self._any_time()
            zookeeper.start(index, waits=False)
        yield from self._until_keepers_answer()

    def _pause_keeper(self) -> Chosen:
        index = self._chance.randrange(3)
        return ("pause of a ZooKeeper server", self._keeper_paused(index)) if self._take_keepers() else None

    def _keeper_paused(self, index: int) -> Fault:
        self._zookeeper.pause(index)
        yield self._any_time()
        self._zookeeper.resume(index)
        yield from self._until_keepers_answer()

    def _until_keepers_answer(self) -> Fault:
        deadline = time.monotonic() + START_S
        while not all("Mode: " in self._zookeeper.ask(index, "srvr") for index in range(3)):
            if time.monotonic() > deadline:
                self._trouble("ZooKeeper does not come back")
                return
            yield LOOK_AGAIN_S
        yield self._any_time()

    @property
    def _zookeeper(self) -> ZookeeperServers:
        assert self._cluster.zookeeper is not None
        return self._cluster.zookeeper
