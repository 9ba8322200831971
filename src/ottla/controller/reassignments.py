"""Partitions that move to other brokers: begun, completed when the new replicas are in sync, or taken back.

While a partition moves, its replicas are the new ones, in their order, and behind them those that will go. Decisions
without I/O, refused in Kafka's codes and words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla.controller.assignment import check_manual
from ottla.controller.changes import Change, ChangedReplicas
from ottla.controller.cluster import Cluster
from ottla.controller.layout import PartitionState, TopicNode
from ottla.controller.leaders import Rules, RulesOf, settled, stamped
from ottla.wire.errors import ApiError, ErrorCode

States = Mapping[str, Mapping[int, PartitionState]]


class Placement(NamedTuple):
    """Where a partition is, who comes and who goes, and its state with that."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]
    state: PartitionState

    @property
    def is_moving(self) -> bool:
        return bool(self.adding or self.removing)


class Reassignment(NamedTuple):
    """A partition that is to be on other brokers; None: on those that it was on before it began to move."""

    name: str
    partition: int
    replicas: Sequence[int] | None


class Moves:
    """What one request, or one event, does to partitions. All of it is decided on the cluster as it is."""

    def __init__(self, cluster: Cluster, rules_of: RulesOf) -> None:
        self._cluster = cluster
        self._rules_of = rules_of
        self._moved: dict[str, dict[int, Placement]] = {}

    def reassign(self, asked: Reassignment, *, may_change_factor: bool = True) -> None:
        """ApiError where it cannot be."""
        placement = self._placement(asked.name, asked.partition)
        if asked.replicas is None:
            moved = self._taken_back(asked, placement)
        else:
            check_manual(asked.replicas, sorted(self._cluster.brokers), None)
            if not may_change_factor:
                _check_factor(placement, asked.replicas)
            moved = self._begun(asked, placement)
        if moved is not placement:
            self._moved.setdefault(asked.name, {})[asked.partition] = moved

    def states_changed(self, states: States) -> None:
        """Other replicas are in sync: that may be all that a move has waited for."""
        for name, by_index in states.items():
            topic = self._cluster.topics[name]
            for index, state in by_index.items():
                if index in topic.adding or index in topic.removing:
                    placement = placement_of(topic, index, self._cluster.states[name][index])
                    moved = self._completed(name, index, placement._replace(state=state), placement)
                    if moved is not None:
                        self._moved.setdefault(name, {})[index] = moved

    def changes(self, states: States | None = None) -> list[Change]:
        """All that is decided; `states`: of partitions besides those that move."""
        changed: dict[str, dict[int, PartitionState]] = {}
        for name, others in (states or {}).items():
            changed[name] = dict(others)
        topics: list[Change] = []
        for name, moved in self._moved.items():
            changed.setdefault(name, {}).update({index: placement.state for index, placement in moved.items()})
            node = _with_placements(self._cluster.topics[name], moved)
            if node != self._cluster.topics[name]:
                topics.append(ChangedReplicas(name, node))
        return [*topics, stamped(self._cluster, changed)] if changed else []

    # One partition

    def _placement(self, name: str, index: int) -> Placement:
        topic = self._cluster.topics.get(name)
        if topic is None:
            message = f"Unable to find a topic named {name}."
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
        if not 0 <= index < len(topic.replicas):
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        return placement_of(topic, index, self._cluster.states[name][index])

    def _begun(self, asked: Reassignment, placement: Placement) -> Placement:
        """Where it moves already, those that were to come and are not to any more go at once."""
        assert asked.replicas is not None
        target, state = list(asked.replicas), placement.state
        origin = [replica for replica in placement.replicas if replica not in placement.adding]
        if not set(state.in_sync) & {*origin, *target}:
            origin = placement.replicas  # they are all that is in sync
        going = [replica for replica in origin if replica not in target]
        replicas, adding = target + going, sorted(set(target) - set(origin))
        if (replicas, adding, sorted(going)) == placement[:3]:
            return placement
        gone = set(placement.replicas) - set(replicas)
        if gone:
            in_sync = tuple(replica for replica in state.in_sync if replica not in gone)
            state = self._settled(asked.name, asked.partition, replicas, state._replace(in_sync=in_sync))
        moved = Placement(replicas, adding, sorted(going), state)
        completed = self._completed(asked.name, asked.partition, moved, placement)
        return completed or moved._replace(state=_next(placement.state, state, is_elected=bool(gone)))

    def _completed(self, name: str, index: int, placement: Placement, before: Placement) -> Placement | None:
        """The partition where it was to go; None while it is not there yet."""
        state, going = placement.state, set(placement.removing)
        in_sync = tuple(replica for replica in state.in_sync if replica not in going)
        if not in_sync or not set(placement.adding) <= set(state.in_sync):
            return None
        replicas = [replica for replica in placement.replicas if replica not in going]
        after = self._settled(name, index, replicas, state._replace(in_sync=in_sync))
        if after.leader_id not in replicas:
            return None  # nobody could lead it: it stays as it is until somebody can
        is_elected = not set(before.replicas) <= set(replicas)
        return Placement(replicas, [], [], _next(before.state, after, is_elected=is_elected))

    def _taken_back(self, asked: Reassignment, placement: Placement) -> Placement:
        if not placement.is_moving:
            raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        coming = set(placement.adding)
        replicas = [replica for replica in placement.replicas if replica not in coming]
        in_sync = tuple(replica for replica in placement.state.in_sync if replica not in coming)
        if not in_sync:
            if not self._rules_of(asked.name, asked.partition).is_unclean:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Unable to revert partition assignment for {asked.name}:{asked.partition} because it would "
                    "require an unclean leader election.",
                )
            in_sync = (replicas[0],)
        after = self._settled(asked.name, asked.partition, replicas, placement.state._replace(in_sync=in_sync))
        return Placement(replicas, [], [], _next(placement.state, after, is_elected=bool(coming)))

    def _settled(self, name: str, index: int, replicas: Sequence[int], state: PartitionState) -> PartitionState:
        """With a leader among these replicas, and nobody else in its sets."""
        rules: Rules = self._rules_of(name, index)._replace(replicas=replicas)
        eligible = tuple(replica for replica in state.eligible if replica in replicas)
        last_known = tuple(replica for replica in state.last_known if replica in replicas)
        return settled(state._replace(eligible=eligible, last_known=last_known), rules, self._cluster.usable)


def _check_factor(placement: Placement, target: Sequence[int]) -> None:
    """A partition that moves has as many replicas as it will have without those that come."""
    before = len(placement.replicas) - len(placement.adding)
    if len(target) != before:
        message = f"The replication factor is changed from {before} to {len(target)}"
        raise ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


def _next(before: PartitionState, after: PartitionState, *, is_elected: bool = False) -> PartitionState:
    """In a new epoch where another leads, or replicas are gone: those must not fetch any more."""
    is_elected = is_elected or after.leader_id != before.leader_id
    return after._replace(leader_epoch=before.leader_epoch + is_elected, partition_epoch=before.partition_epoch + 1)


def placement_of(topic: TopicNode, index: int, state: PartitionState) -> Placement:
    adding, removing = topic.adding.get(index, ()), topic.removing.get(index, ())
    return Placement(list(topic.replicas[index]), list(adding), list(removing), state)


def _with_placements(topic: TopicNode, moved: Mapping[int, Placement]) -> TopicNode:
    replicas, adding, removing = list(topic.replicas), dict(topic.adding), dict(topic.removing)
    for index, placement in moved.items():
        replicas[index] = placement.replicas
        for replicas_of, found in ((adding, placement.adding), (removing, placement.removing)):
            if found:
                replicas_of[index] = found
            else:
                replicas_of.pop(index, None)
    return topic._replace(replicas=replicas, adding=adding, removing=removing)


# What moves


class Moving(NamedTuple):
    name: str
    partition: int
    placement: Placement


def moving(cluster: Cluster, asked: Iterable[tuple[str, Sequence[int]]] | None = None) -> Iterator[Moving]:
    """The partitions that move; `asked`: only these."""
    if asked is None:
        names = ((name, sorted({*topic.adding, *topic.removing})) for name, topic in cluster.topics.items())
        return moving(cluster, names)
    return _moving(cluster, asked)


def _moving(cluster: Cluster, asked: Iterable[tuple[str, Sequence[int]]]) -> Iterator[Moving]:
    for name, indexes in asked:
        topic = cluster.topics.get(name)
        for index in indexes if topic is not None else ():
            if topic is not None and (index in topic.adding or index in topic.removing):
                yield Moving(name, index, placement_of(topic, index, cluster.states[name][index]))
