"""Topics that grow in order, step by step. Decisions without I/O.

1. All brokers learn that there will be new partitions (PREPARING). None of them says how many there are meanwhile:
   a client that was told of the new ones by one broker must not be told the old number by another.
2. The new partitions are there, and nobody leads them (DRAINING): producers learn of them, keep what is for them, and
   send to the parents what they had chosen a partition for before.
3. When that has come to an end (FENCING), parents refuse keys that belong to new partitions, and the leader of each
   tells how far its log went before it did: that is its fence.
4. With all fences known the new partitions get leaders (OPEN), in the same commit.

Leaders say where they are again and again, until they learn of the next step. So a controller that takes over in the
middle goes on, and what it was told by one leader is good under the next: the log of that one has no key that went
behind the same offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from ottla.controller.changes import Change, ChangedReplicas
from ottla.controller.cluster import Cluster
from ottla.controller.layout import NOBODY, PartitionState, TopicNode
from ottla.controller.leaders import RulesOf, settled
from ottla.controller.reassignments import Moves
from ottla.controller.topic_names import INTERNAL, OFFSETS_TOPIC
from ottla.records.growth import Growth, Phase
from ottla.records.placement import PARTITIONERS
from ottla.wire.errors import ApiError, ErrorCode

LIFTED = -1
"""In the place of a fence: it holds nobody back any more."""


class InOrder(NamedTuple):
    """How a topic is to grow in order."""

    partitioner: str
    quiet_ms: int


NOT_IN_ORDER: Mapping[str, InOrder] = {}


class Report(NamedTuple):
    """How far the leader of a parent is."""

    name: str
    partition: int
    leader_epoch: int
    is_drained: bool = False
    fence: int | None = None  # of the growth under way: LIFTED where there is none; None: it is not known yet
    lowered: Mapping[int, int] = {}  # fences that it had before: by the count before that growth, LIFTED or a lower one


# Beginning


def begun(cluster: Cluster, name: str, count: int, in_order: InOrder) -> Growth:
    """A topic begins to grow to so many partitions; ApiError where it cannot."""
    partitioner, quiet_ms = in_order
    node = cluster.topics[name]
    before = len(node.replicas)
    if count % before:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic {name} has {before} partition(s); in order it can only grow to a multiple of that, not to {count}.",
        )
    if partitioner not in PARTITIONERS:
        known = " or ".join(PARTITIONERS)
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Partitioner {partitioner} is not known, it is {known}.")
    if quiet_ms < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{quiet_ms} ms is no time to wait for.")
    if name in INTERNAL:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Topic {name} is the cluster's own, and its keys stay where they are."
        )
    if any(state.leader_id == NOBODY for state in cluster.states[name]):
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"Topic {name} has partitions that nobody leads.")
    if any(state.leader_id == NOBODY for state in cluster.states.get(OFFSETS_TOPIC, ())):
        # Their groups would not be noted as those that know the topic from before.
        raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"Topic {OFFSETS_TOPIC} has partitions that nobody leads.")
    away = [str(node_id) for node_id in sorted(cluster.brokers) if not cluster.is_alive(node_id)]
    if away:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Not all brokers are there (missing: {', '.join(away)}), and one that is cut off could tell producers the "
            "old number of partitions. Start them, or unregister those that are gone for good.",
        )
    return Growth(before, count, partitioner, Phase.PREPARING, quiet_ms=quiet_ms)


def closed(states: Iterable[PartitionState]) -> list[PartitionState]:
    """The first states of partitions that nobody leads yet."""
    return [state._replace(leader_id=NOBODY) for state in states]


# Going on


class GrowthReports:
    """What leaders have told of one topic in the time of one controller."""

    def __init__(self, topic_id: bytes, growth: Growth, now: float, position: int) -> None:
        """`position`: up to where the brokers have to be told, to know of this step."""
        self.topic_id = topic_id
        self.growth = growth
        self.since = now
        self.position = position
        self.drained: set[int] = set()
        self.fences: dict[int, int] = {}

    def is_of(self, topic_id: bytes, growth: Growth) -> bool:
        return (self.topic_id, self.growth) == (topic_id, growth)

    def take(self, report: Report) -> None:
        if report.partition not in self.growth.parents:
            return
        if report.is_drained:
            self.drained.add(report.partition)
        else:
            self.drained.discard(report.partition)
        if report.fence is not None:
            self.fences[report.partition] = report.fence

    @property
    def are_drained(self) -> bool:
        return len(self.drained) == self.growth.first

    @property
    def has_fences(self) -> bool:
        return len(self.fences) == self.growth.first


def is_current(cluster: Cluster, report: Report) -> bool:
    """Whether it comes from the present leader of the partition."""
    state = cluster.state(report.name, report.partition)
    return state is not None and state.leader_epoch == report.leader_epoch and state.leader_id != NOBODY


def draining(node: TopicNode, name: str) -> list[Change]:
    """Clients are told of the new partitions."""
    return [_changed(node, name, node.growths[-1]._replace(phase=Phase.DRAINING))]


def fencing(node: TopicNode, name: str) -> list[Change]:
    """No more records of keys that go are to come to the parents."""
    return [_changed(node, name, node.growths[-1]._replace(phase=Phase.FENCING))]


def opened(cluster: Cluster, rules_of: RulesOf, name: str, fences: dict[int, int]) -> list[Change]:
    """The new partitions get leaders."""
    node = cluster.topics[name]
    standing = {parent: fence for parent, fence in sorted(fences.items()) if fence != LIFTED}
    growth = node.growths[-1]._replace(phase=Phase.OPEN, fences=standing)
    states: dict[int, PartitionState] = {}
    for index in growth.new_partitions:
        rules = rules_of(name, index)._replace(is_closed=False)
        state = settled(cluster.states[name][index], rules, cluster.usable)
        if state is not cluster.states[name][index]:
            states[index] = state
    moves = Moves(cluster, rules_of)
    return [_changed(node, name, growth), *moves.changes({name: states} if states else None)]


def lowered(node: TopicNode, name: str, reports: Iterable[Report]) -> list[Change]:
    """Fences of which less is left: retention has passed them, or what lay before them is gone or cannot be seen."""
    growths = list(node.growths)
    for report in reports:
        for place, growth in enumerate(growths):
            known, told = growth.fences.get(report.partition), report.lowered.get(growth.first)
            if known is None or told is None or known <= told:
                continue
            fences = {**growth.fences, report.partition: told}
            standing = {parent: fence for parent, fence in fences.items() if fence != LIFTED}
            growths[place] = growth._replace(fences=standing)
    return [] if tuple(growths) == node.growths else [ChangedReplicas(name, node._replace(growths=tuple(growths)))]


def _changed(node: TopicNode, name: str, growth: Growth) -> ChangedReplicas:
    return ChangedReplicas(name, node._replace(growths=(*node.growths[:-1], growth)))
