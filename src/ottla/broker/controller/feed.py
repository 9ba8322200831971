"""What the controller has decided, in order, for the brokers that ask for it.

Changes have numbers. A broker asks for what follows the last number that it has, and is answered as soon as there is
something. A broker that is too far behind, or that followed another controller, gets the whole cluster in parts, as it
was when the broker asked for the first part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from ottla.broker.loop.loop import Loop, Timer
from ottla.controller.changes import Change, ChangedStates
from ottla.controller.cluster import Cluster
from ottla.controller.feed import changes_of, encode_changes
from ottla.wire.messages.cluster_feed import ClusterFeedRequest, ClusterFeedResponse

MOST_KEPT = 10_000  # changes, for brokers that were away for a moment
MOST_AT_ONCE = 500  # changes in one answer
MOST_STRANGERS = 20  # that are not in the cluster, and are told of all of it
Reply = Callable[[ClusterFeedResponse], None]


class _Parked(NamedTuple):
    position: int
    reply: Reply
    timer: Timer


class _Snapshot(NamedTuple):
    position: int
    changes: Sequence[Change]

    @property
    def parts(self) -> int:
        return max(1, -(-len(self.changes) // MOST_AT_ONCE))


class Following(NamedTuple):
    """How far a broker is, as it last said."""

    position: int
    asked_ms: int
    caught_up_ms: int  # when it last had all there was; -1: never


class Feed:
    def __init__(self, loop: Loop, cluster: Cluster, node_id: int) -> None:
        """`node_id`: of the controller."""
        self._loop = loop
        self._cluster = cluster
        self._node_id = node_id
        self._first = 0  # the number of changes before those that are kept
        self._changes: deque[Change] = deque()
        self._parked: dict[int, _Parked] = {}  # by broker
        self._snapshots: dict[int, _Snapshot] = {}
        self.following: dict[int, Following] = {}  # by broker

    def have_all(self, node_ids: Iterable[int], position: int) -> bool:
        """Whether all these brokers were told what was decided before a position."""
        return all(each in self.following and self.following[each].position >= position for each in node_ids)

    @property
    def position(self) -> int:
        return self._first + len(self._changes)

    def append(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self._changes += _small(change)
        while len(self._changes) > MOST_KEPT:
            self._changes.popleft()
            self._first += 1
        for node_id in list(self._parked):
            self._answer_parked(node_id)

    def ask(self, request: ClusterFeedRequest, reply: Reply) -> None:
        """Answer a broker, now or when there is something to tell."""
        node_id = request.broker_id
        self.forget(node_id)
        is_known = request.controller_epoch == self._cluster.controller_epoch
        self._note(node_id, request.position if is_known and not request.part else -1)
        if not is_known or not self._first <= request.position <= self.position or request.part:
            reply(self._part(request))
        elif request.position < self.position or request.max_wait_ms <= 0:
            reply(self._following(request.position))
        else:
            timer = self._loop.call_later(request.max_wait_ms / 1000, lambda: self._answer_parked(node_id))
            self._parked[node_id] = _Parked(request.position, reply, timer)

    def _note(self, node_id: int, position: int) -> None:
        if node_id not in self._cluster.brokers:
            return  # it comes, or somebody made up the number
        now_ms, known = self._loop.system.clock_ms(), self.following.get(node_id)
        caught_up_ms = -1 if known is None else known.caught_up_ms
        self.following[node_id] = Following(position, now_ms, now_ms if position == self.position else caught_up_ms)

    def _answer_parked(self, node_id: int) -> None:
        parked = self._parked.pop(node_id)
        parked.timer.cancel()
        parked.reply(self._following(parked.position))

    def _following(self, position: int) -> ClusterFeedResponse:
        start = position - self._first
        changes = list(islice(self._changes, start, start + MOST_AT_ONCE))
        return self._response(position + len(changes), changes)

    def _part(self, request: ClusterFeedRequest) -> ClusterFeedResponse:
        """The next part of the whole. One that was begun under another controller is begun anew."""
        snapshot = self._snapshots.get(request.broker_id)
        is_next = request.controller_epoch == self._cluster.controller_epoch and snapshot is not None
        part = request.part if is_next and snapshot is not None and request.position == snapshot.position else 0
        if snapshot is None or part == 0 or part >= snapshot.parts:
            part = 0
            snapshot = _Snapshot(self.position, list(changes_of(self._cluster)))
            self._keep(request.broker_id, snapshot)
        start = part * MOST_AT_ONCE
        response = self._response(snapshot.position, snapshot.changes[start : start + MOST_AT_ONCE])
        response.parts = snapshot.parts
        if part == snapshot.parts - 1:
            del self._snapshots[request.broker_id]
        return response

    def _keep(self, node_id: int, snapshot: _Snapshot) -> None:
        """Until all of it is told; of those that are not in the cluster yet, the last few."""
        self._snapshots.pop(node_id, None)
        self._snapshots[node_id] = snapshot
        strangers = [each for each in self._snapshots if each not in self._cluster.brokers]
        for stranger in strangers[:-MOST_STRANGERS]:
            del self._snapshots[stranger]

    def _response(self, position: int, changes: Sequence[Change]) -> ClusterFeedResponse:
        return ClusterFeedResponse(
            controller_id=self._node_id,
            controller_epoch=self._cluster.controller_epoch,
            position=position,
            cluster_id=self._cluster.cluster_id,
            changes=encode_changes(changes),
        )

    def forget(self, node_id: int) -> None:
        """A broker that waits is told nothing: it went, or asks anew."""
        parked = self._parked.pop(node_id, None)
        if parked is not None:
            parked.timer.cancel()

    def close(self, response: ClusterFeedResponse) -> None:
        """Tell all that wait for it that there is nothing more to be had here."""
        parked, self._parked = self._parked, {}
        for each in parked.values():
            each.timer.cancel()
            each.reply(response)


def _small(change: Change) -> Sequence[Change]:
    """Changes of many topics in pieces, so that no answer is too long."""
    if not isinstance(change, ChangedStates) or len(change.states) <= 1:
        return [change]
    return [ChangedStates({name: states}) for name, states in change.states.items()]
