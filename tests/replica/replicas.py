"""Three replicas of one partition in a world made from a seed: lost, late and repeated messages, crashes, elections.

The partitions, the followers and the logs are the real ones, each log on its own simulated disk. The controller is a
toy that keeps the rules: leaders come from the in-sync set, or from those that left it while it was too small; each
election raises the epoch; an in-sync set is taken only from the leader, on the state that it knows, with replicas that
have not restarted since. Nodes hear of its decisions late, but in their order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from ottla.log.errors import LogError
from ottla.log.manager import LogManager
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import whole_batches
from ottla.records.build import build_batch
from ottla.records.read import Batch
from ottla.replica.follower import Answer, Copy, Follower, RestartAt, Truncate
from ottla.replica.machine import ALL, Role
from ottla.replica.partition import Partition
from ottla.testing.files import SimulatedFiles
from ottla.testing.loss import RandomLoss
from ottla.wire.errors import ErrorCode
from tests.replica.shell import ManualShell

NODES = (1, 2, 3)
FOLDER = "/data"
TOPIC = ("t", 0)
CONFIG = TopicConfig(internal_segment_bytes=600, index_interval_bytes=64, min_insync_replicas=2)
MOST_BYTES = 400
MOST_LAG_MS = 50
MOST_MESSAGES = 5  # under way; more of them are lost


class State(NamedTuple):
    leader_id: int
    leader_epoch: int
    in_sync: frozenset[int]
    partition_epoch: int
    eligible: frozenset[int] = frozenset()


class Fetch(NamedTuple):
    replica: int
    leader: int
    leader_epoch: int
    broker_epoch: int
    offset: int
    last_epoch: int


class Fetched(NamedTuple):
    asked: Fetch
    answer: Answer


class Proposed(NamedTuple):
    leader: int
    leader_epoch: int
    partition_epoch: int
    in_sync: frozenset[int]
    broker_epochs: dict[int, int]


Message = Fetch | Fetched | Proposed


class Acknowledged:
    """A producer, who remembers what it was told to be kept."""

    def __init__(self, cluster: Replicas) -> None:
        self._cluster = cluster

    def committed(self, token: tuple[int, int, bytes], failure: LogError | None) -> None:
        if failure is None:
            self._cluster.acknowledged.append(token)


@dataclass
class Node:
    node_id: int
    files: SimulatedFiles = field(default_factory=SimulatedFiles)
    broker_epoch: int = 0
    partition: Partition | None = None
    follower: Follower | None = None
    manager: LogManager | None = None
    shell: ManualShell = field(default_factory=ManualShell)
    inbox: deque[State] = field(default_factory=deque)  # what the controller has decided, and it does not know yet
    has_lost_data: bool = False


class Replicas:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now_ms = 0
        self.weights = self._draw_weights()
        self.nodes = {node_id: Node(node_id) for node_id in NODES}
        self.messages: list[Message] = []
        self.state = State(1, 0, frozenset(NODES), 0)
        self.committed: dict[int, tuple[int, bytes]] = {}  # offset -> epoch and value
        self.acknowledged: list[tuple[int, int, bytes]] = []  # in this step
        self.high_watermarks: dict[int, int] = {}  # by epoch
        self.produced = 0
        self.registrations = 0
        self.truncations = 0
        self.elections = 0
        for node in self.nodes.values():
            self.start(node)

    # Nodes

    def start(self, node: Node) -> None:
        self.registrations += 1
        node.broker_epoch = self.registrations
        node.manager = LogManager(node.files, FOLDER)
        node.manager.open(lambda _topic: CONFIG, self.now_ms)
        log = node.manager.logs.get(TOPIC) or node.manager.create(*TOPIC, CONFIG, self.now_ms)
        node.shell = ManualShell()
        node.partition = Partition(*TOPIC, bytes(16), log, node.node_id, node.shell)
        node.follower = None
        node.inbox.clear()
        if node.has_lost_data:
            node.has_lost_data = False
            self._exclude(node.node_id)
        if self.state.leader_id in (-1, node.node_id):
            self.elect()
        node.inbox.append(self.state)

    def _exclude(self, node_id: int) -> None:
        """A broker has lost what was not on its disk: it must copy anew before it counts."""
        state = self.state
        if state.in_sync - {node_id}:
            self.decide(state._replace(in_sync=state.in_sync - {node_id}, eligible=state.eligible - {node_id}))

    def may_lose_power(self, node: Node) -> bool:
        """Whether another replica has all that is committed, and keeps it."""
        safe = {each.node_id for each in self.nodes.values() if not each.has_lost_data} - {node.node_id}
        return bool(self.state.in_sync & safe) and len(self.state.in_sync) > 1

    def crash(self, node: Node, *, power: bool) -> None:
        if power:
            node.has_lost_data = True
            node.files.crash(RandomLoss(self.chance))
        else:
            node.files.kill()
        assert node.manager is not None
        node.manager.abandon()
        node.partition = node.follower = node.manager = None
        node.inbox.clear()

    def alive(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.partition is not None]

    # The controller

    def decide(self, state: State) -> None:
        self.state = state._replace(partition_epoch=self.state.partition_epoch + 1)
        for node in self.alive():
            node.inbox.append(self.state)

    def elect(self, *, preferring: int | None = None) -> None:
        """Another leader, from those that have all that is committed."""
        alive = {node.node_id for node in self.alive() if not node.has_lost_data}
        state = self.state
        candidates = [each for each in NODES if each in alive & state.in_sync]
        eligible = [each for each in NODES if each in alive & state.eligible]
        if preferring in candidates:
            leader_id = preferring
        elif candidates:
            leader_id = candidates[0]
        elif eligible:
            leader_id = eligible[0]
        else:
            if state.leader_id != -1:
                self.decide(state._replace(leader_id=-1, leader_epoch=state.leader_epoch + 1))
            return
        assert leader_id is not None
        self.elections += 1
        in_sync = state.in_sync if candidates else frozenset({leader_id})
        gone = state.in_sync - in_sync
        self.decide(
            State(
                leader_id, state.leader_epoch + 1, in_sync, state.partition_epoch, state.eligible - {leader_id} | gone
            )
        )

    def alter(self, proposed: Proposed) -> None:
        state = self.state
        if (proposed.leader, proposed.leader_epoch, proposed.partition_epoch) != (
            state.leader_id,
            state.leader_epoch,
            state.partition_epoch,
        ):
            return  # the leader hears of the change
        node = self.nodes[proposed.leader]
        stale = [
            replica
            for replica in proposed.in_sync - state.in_sync
            if self.nodes[replica].partition is None
            or self.nodes[replica].has_lost_data
            or self.nodes[replica].broker_epoch != proposed.broker_epochs[replica]
        ]
        if stale:
            if node.partition is not None and node.partition.partition_epoch == proposed.partition_epoch:
                node.partition.withdraw_proposal()
            return
        left = state.in_sync - proposed.in_sync
        eligible = (state.eligible | left if len(proposed.in_sync) < CONFIG.min_insync_replicas else frozenset()) - (
            proposed.in_sync
        )
        self.decide(state._replace(in_sync=proposed.in_sync, eligible=eligible))

    def hear(self, node: Node) -> None:
        """The next decision reaches a node."""
        assert node.partition is not None
        if not node.inbox:
            return
        state, partition = node.inbox.popleft(), node.partition
        before = partition.machine.role, partition.leader_epoch
        partition.apply(
            leader_id=state.leader_id,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            replicas=NODES,
            in_sync=sorted(state.in_sync),
            now_ms=self.now_ms,
        )
        if (partition.machine.role, partition.leader_epoch) != before:
            is_follower = partition.machine.role is Role.FOLLOWER
            node.follower = Follower(partition.leader_epoch) if is_follower else None

    # Clients and replicas

    def produce(self, node: Node) -> None:
        partition = node.partition
        assert partition is not None
        acks = self.chance.choice((ALL, ALL, 1))
        self.produced += 1
        value = b"%d" % self.produced
        try:
            placed = partition.writer.produce(build_batch([value], timestamp=self.now_ms), 12, self.now_ms, acks)
        except LogError:
            return
        if acks == ALL:
            partition.wait(placed[1], ALL, Acknowledged(self), (placed[0], partition.leader_epoch, value))

    def ask(self, node: Node) -> None:
        partition, follower = node.partition, node.follower
        if partition is None or follower is None:
            return
        follower.resume()
        if follower.may_fetch:
            self.messages.append(
                Fetch(
                    node.node_id,
                    partition.leader_id,
                    follower.leader_epoch,
                    node.broker_epoch,
                    *partition.fetch_position,
                )
            )

    def serve(self, asked: Fetch) -> None:
        """A leader answers a follower, as the broker's handler does."""
        partition = self.nodes[asked.leader].partition
        if partition is None:
            return
        try:
            partition.check_epoch(asked.leader_epoch)
            partition.check_leader()
            read = partition.read_for_replica(asked.offset, MOST_BYTES, asked.last_epoch)
        except LogError as refusal:
            answer = Answer(ErrorCode(refusal.code), -1, partition.log.log_start_offset, None)
            self.messages.append(Fetched(asked, answer))
            return
        refused = None
        if read.diverging is None:
            refused = partition.follower_at(
                asked.replica, asked.leader_epoch, asked.offset, self.now_ms, asked.broker_epoch
            )
        records = None if read.records is None else read.records.read()
        error = ErrorCode.NONE if refused is None else refused
        answer = Answer(error, partition.machine.high_watermark, read.log_start_offset, records, read.diverging)
        self.messages.append(Fetched(asked, answer))

    def take(self, fetched: Fetched) -> None:
        asked = fetched.asked
        node = self.nodes[asked.replica]
        partition, follower = node.partition, node.follower
        if partition is None or follower is None or follower.leader_epoch != asked.leader_epoch:
            return
        log = partition.log
        match follower.answered(asked.offset, fetched.answer, log.end_offset, log.epochs):
            case Copy(records, high_watermark, log_start_offset):
                partition.copy(records, follower.leader_epoch, high_watermark, log_start_offset, self.now_ms)
            case Truncate(offset):
                self.truncations += 1
                partition.truncate(offset, self.now_ms)
                follower.truncated()
            case RestartAt(offset):
                partition.restart_at(offset, self.now_ms)
                follower.truncated()

    def propose(self, node: Node) -> None:
        """What the partition proposed goes out, and goes out again: nobody may have heard it."""
        partition = node.partition
        if partition is None or partition.machine.proposed is None:
            return
        followers = partition.machine.followers
        self.messages.append(
            Proposed(
                node.node_id,
                partition.leader_epoch,
                partition.partition_epoch,
                partition.machine.proposed,
                {replica: follower.broker_epoch for replica, follower in followers.items()},
            )
        )

    def deliver(self, _node: Node) -> None:
        if not self.messages:
            return
        del self.messages[: len(self.messages) - MOST_MESSAGES]
        number = self.chance.randrange(len(self.messages))
        drawn = self.chance.random()
        message = self.messages[number] if drawn < 0.1 else self.messages.pop(number)  # it may come again
        if drawn > 0.9:
            return  # it is lost
        match message:
            case Fetch():
                self.serve(message)
            case Fetched():
                self.take(message)
            case Proposed():
                self.alter(message)

    # Chance

    def step(self) -> None:
        """Something happens. What happens often is drawn for each seed: some faults need others to be rare."""
        chance = self.chance
        self.now_ms += chance.randrange(10)
        [act] = chance.choices(list(self.weights), list(self.weights.values()))
        act(chance.choice(list(self.nodes.values())))
        for each in self.alive():
            each.shell.end_round()
        self.check()

    def _produce(self, _node: Node) -> None:
        leaders = [node for node in self.alive() if node.partition is not None and node.partition.is_leader]
        if leaders:
            self.produce(self.chance.choice(leaders))

    def _ask(self, _node: Node) -> None:
        followers = [node for node in self.alive() if node.follower is not None]
        if followers:
            self.ask(self.chance.choice(followers))

    def _hear(self, node: Node) -> None:
        if node.partition is not None:
            self.hear(node)

    def _look_at_lag(self, node: Node) -> None:
        if node.partition is not None:
            node.partition.look_at_lag(self.now_ms, MOST_LAG_MS)

    def _elect(self, node: Node) -> None:
        self.elect(preferring=node.node_id)

    def _crash(self, node: Node) -> None:
        if node.partition is not None:
            self.crash(node, power=self.chance.random() < 0.5 and self.may_lose_power(node))
            if self.state.leader_id == node.node_id:
                self.elect()

    def _start(self, node: Node) -> None:
        if node.partition is None:
            self.start(node)

    def _draw_weights(self) -> dict[Callable[[Node], None], float]:
        usual = {
            self._produce: 15.0,
            self._ask: 30.0,
            self.deliver: 45.0,
            self._hear: 10.0,
            self.propose: 5.0,
            self._look_at_lag: 4.0,
            self.house_keep: 2.0,
            self._elect: 1.0,
            self._crash: 2.0,
            self._start: 6.0,
        }
        return {act: weight * self.chance.choice((0.3, 1.0, 1.0, 3.0)) for act, weight in usual.items()}

    def house_keep(self, node: Node) -> None:
        if node.partition is None or node.manager is None:
            return
        node.partition.log.flush(self.now_ms)
        node.manager.write_checkpoint("recovery-point-offset-checkpoint")
        node.manager.write_checkpoint("replication-offset-checkpoint")
        if self.chance.random() < 0.3 and node.partition.is_leader:
            node.partition.delete_records(self.chance.randrange(node.partition.machine.high_watermark + 1), self.now_ms)
            node.manager.write_checkpoint("log-start-offset-checkpoint")

    # What must hold

    def records(self, partition: Partition, bound: int) -> dict[int, tuple[int, bytes]]:
        found: dict[int, tuple[int, bytes]] = {}
        log = partition.log
        offset = log.log_start_offset
        while offset < bound:
            read = log.read(offset, 1 << 30, bound)
            if read is None:
                break
            data = memoryview(read.read())
            for position, header in whole_batches(data):
                for record in Batch(header, data[position : position + header.size]).records():
                    assert record.value is not None
                    found[record.offset] = (header.leader_epoch, bytes(record.value))
                offset = header.next_offset
        return found

    def check(self) -> None:
        leaders: dict[int, int] = {}
        for node in self.alive():
            partition = node.partition
            assert partition is not None
            machine = partition.machine
            if machine.role is Role.LEADER:
                assert leaders.setdefault(machine.epoch, node.node_id) == node.node_id, "two leaders in one epoch"
                before = self.high_watermarks.get(machine.epoch, 0)
                assert machine.high_watermark >= before, "the high watermark of an epoch fell"
                self.high_watermarks[machine.epoch] = machine.high_watermark
            for offset, record in self.records(partition, machine.high_watermark).items():
                known = self.committed.setdefault(offset, record)
                assert known == record, f"offset {offset} is {record} on {node.node_id}, and was {known}"
        starts = max(node.partition.log.log_start_offset for node in self.alive() if node.partition) if leaders else 0
        for offset, epoch, value in self.acknowledged:
            kept = self.committed.get(offset)
            assert kept == (epoch, value) or offset < starts, f"offset {offset}: {value!r} was acknowledged, not {kept}"
        self.acknowledged.clear()
        self.check_leader()

    def check_leader(self) -> None:
        """Whoever the controller lets lead has all that is committed, or will when it knows."""
        node = self.nodes.get(self.state.leader_id)
        if node is None or node.partition is None or not self.committed:
            return
        partition = node.partition
        held = self.records(partition, partition.log.end_offset)
        for offset, record in self.committed.items():
            if offset >= partition.log.log_start_offset:
                assert held.get(offset) == record, f"{node.node_id} leads without offset {offset}"

    def settle(self) -> None:
        """All come back, nothing is lost any more: in the end all have the same."""
        self.messages.clear()
        for node in self.nodes.values():
            if node.partition is None:
                self.start(node)
        if self.state.leader_id == -1:
            self.elect()
        for _ in range(400):
            self.now_ms += 1
            for node in self.nodes.values():
                while node.inbox:
                    self.hear(node)
                self.ask(node)
                self.propose(node)
            pending, self.messages = self.messages, []
            for message in pending:
                match message:
                    case Fetch():
                        self.serve(message)
                    case Fetched():
                        self.take(message)
                    case Proposed():
                        self.alter(message)
            for node in self.nodes.values():
                node.shell.end_round()
            self.check()
            if self.is_settled():
                return
        raise AssertionError(f"the replicas do not come together: {self.state}, {self.nodes}")

    def is_settled(self) -> bool:
        ends = {(n.partition.log.end_offset, n.partition.machine.high_watermark) for n in self.alive() if n.partition}
        return len(ends) == 1 and len(set(next(iter(ends)))) == 1 and self.state.in_sync == frozenset(NODES)


def run(seed: int, steps: int) -> Replicas:
    replicas = Replicas(seed)
    for _ in range(steps):
        replicas.step()
    replicas.settle()
    return replicas
