"""The cluster as this broker knows it, from what the controller tells: in parts at first, and then change by change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from ottla.broker.controller.applier import Applier
from ottla.broker.events import Events
from ottla.broker.loop.loop import Loop, Timer
from ottla.controller.changes import Change, ChangedStates
from ottla.controller.cluster import Cluster
from ottla.controller.feed import changes_between, decode_changes
from ottla.log.loss import Loss
from ottla.wire.messages.cluster_feed import ClusterFeedRequest, ClusterFeedResponse, RottenPartition

events = Events("ottla.broker")

APPLY_SECONDS = 10.0  # for which somebody waits until this broker has come as far as the controller was


class _Wait(NamedTuple):
    epoch: int
    position: int
    done: Callable[[], None]


class View:
    def __init__(self, loop: Loop, applier: Applier, node_id: int) -> None:
        self.cluster = Cluster()
        self.is_open = False  # the data of this broker is
        self._loop = loop
        self._applier = applier
        self._node_id = node_id
        self._epoch = -1  # of the controller that told it
        self._position = -1  # up to where
        self._applied = -1
        self._coming = Cluster()  # a whole that is not all there yet
        self._next_part = 0
        self._waits: dict[_Wait, Timer] = {}

    # Told by the controller

    def begin(self) -> None:
        """Another controller tells from now on."""
        self._epoch = self._position = self._applied = -1
        self._coming, self._next_part = Cluster(), 0

    def request(self, loss: Loss) -> ClusterFeedRequest:
        """What to ask next. `loss`: what all partitions of this broker may lack."""
        loss = max(loss, self._applier.loss)
        rotten = () if loss else self._applier.rotten
        return ClusterFeedRequest(
            broker_id=self._node_id,
            broker_epoch=-1,
            controller_epoch=self._epoch,
            position=self._position,
            part=self._next_part,
            is_ready=self.is_open,
            loss=Loss.TAIL if rotten else loss,
            rotten=[RottenPartition(topic_id=topic_id, partition_index=index) for topic_id, index in rotten],
        )

    def told(self, answer: ClusterFeedResponse) -> None:
        changes = decode_changes(answer.changes)
        if not answer.parts:
            for change in changes:
                self.cluster.replay(change)
            self._position = answer.position
            self._apply(changes)
            return
        if (answer.controller_epoch, answer.position) != (self._epoch, self._position) or not self._next_part:
            self._epoch, self._position = answer.controller_epoch, answer.position
            self._coming, self._next_part = Cluster(), 0
        for change in changes:
            self._coming.replay(change)
        self._next_part += 1
        if self._next_part == answer.parts:
            self._whole(answer)

    def _whole(self, answer: ClusterFeedResponse) -> None:
        cluster, self._coming, self._next_part = self._coming, Cluster(), 0
        cluster.cluster_id, cluster.controller_epoch = answer.cluster_id, answer.controller_epoch
        self.install(cluster)
        if not self.is_open:
            self.open(is_up=False)

    def install(self, cluster: Cluster) -> None:
        """Go by another cluster from now on: what differs is applied."""
        before, self.cluster = self.cluster, cluster
        if self.is_open:
            self._apply(list(changes_between(before, cluster)))
        else:
            self._applier.obey_settings(cluster)

    def open(self, *, is_up: bool) -> None:
        """Open the data of this broker. `is_up`: the cluster knows that it was started anew."""
        self._applier.open(self.cluster, is_up=is_up)
        self.is_open = True
        self._applied = self._position

    def take_roles(self, done: Callable[[], None]) -> None:
        """The cluster knows of this broker: it leads and follows what it is told to."""
        self._applier.takes_roles = True
        states = {name: dict(enumerate(states)) for name, states in self.cluster.states.items()}
        self._applier.apply([ChangedStates(states)], lambda _refusals, _failure: done())

    def _apply(self, changes: Sequence[Change]) -> None:
        epoch, position = self._epoch, self._position

        def applied(_refusals: object, failure: Exception | None) -> None:
            if failure is not None:
                events.warning("a change could not be applied", reason=failure)
            if epoch == self._epoch:
                self._applied = position
            self._tell_waiting()

        self._applier.apply(changes, applied)

    # How far it is

    def when_applied(self, epoch: int, position: int, done: Callable[[], None]) -> None:
        """Call back when this broker has come so far, or does not come so far in time."""
        wait = _Wait(epoch, position, done)
        self._waits[wait] = self._loop.call_later(APPLY_SECONDS, partial(self._end_wait, wait))
        self._tell_waiting()

    def stop(self) -> None:
        """Nobody waits any more: whoever asked is gone, or will be."""
        for timer in self._waits.values():
            timer.cancel()
        self._waits.clear()

    def _end_wait(self, wait: _Wait) -> None:
        timer = self._waits.pop(wait, None)
        if timer is not None:
            timer.cancel()
            wait.done()

    def _tell_waiting(self) -> None:
        for wait in list(self._waits):
            if self._epoch != wait.epoch or self._applied >= wait.position:
                self._end_wait(wait)
