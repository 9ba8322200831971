"""Replicas whose disk failed: they go offline here, and the controller is told, so that others lead them.

A folder fails as a whole. The broker goes on with its other folders, and stops if there is none. Which failures the
controller knows can be seen in the cluster. So a new controller is told again.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.broker.events import Events
from ottla.broker.loop.slices import Steps, parts_of
from ottla.wire.messages.fail_replicas import FailedTopic, FailReplicasRequest

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.loop.loop import Timer
    from ottla.log.manager import LogManager
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

RETRY_SECONDS = 0.2
PARTITIONS_A_STEP = 50


class FailedDisks:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._failed: dict[tuple[str, int], None] = {}  # not dealt with yet
        self._told: set[LogManager] = set()
        self._is_called = False
        self._is_asking = False
        self._is_stopped = False
        self._timer: Timer | None = None

    def failed(self, partitions: Collection[tuple[str, int]]) -> None:
        """Logs take no more writes. It may come in the midst of anything that is done with a log."""
        self._failed.update(dict.fromkeys(partitions))
        if not self._is_called:
            self._is_called = True
            self._broker.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._is_called = False
        logs = self._broker.logs
        for manager in logs.managers:
            if manager.failure is not None and manager not in self._told:
                self._told.add(manager)
                events.warning("a data folder failed", folder=manager.folder, reason=manager.failure)
        if not logs.sound:
            self._broker.halt(f"all data folders failed: {logs.managers[0].failure}")
        elif not self._is_stopped:
            self._broker.request_slices.start(self._taken_offline(), lambda _none, _failure: self.look())

    def _taken_offline(self) -> Steps:
        failed, self._failed = list(self._failed), {}
        for part in parts_of(failed, PARTITIONS_A_STEP):
            for name, index in part:
                partition = self._broker.topics.partition(name, index)
                if partition is not None and self._is_lost(partition):
                    partition.go_offline()
            yield None

    def _is_lost(self, partition: Partition) -> bool:
        """One that failed alone and has no other replicas is of use still: it can be read."""
        log = partition.log
        is_of_folder = self._broker.logs.manager_of(log).failure is not None
        return log.failure is not None and (is_of_folder or len(partition.replicas) > 1)

    def look(self) -> None:
        """Tell the controller what it does not know."""
        if self._is_stopped or self._is_asking or self._timer is not None:
            return
        failed = self._offline()
        known = self._broker.cluster.brokers.get(self._broker.node_id)
        if known is None or failed == known.failed:
            return
        self._is_asking = True
        self._broker.membership.ask_controller(self._request(failed), 0, self._answered)

    def _offline(self) -> frozenset[tuple[bytes, int]]:
        logs = self._broker.logs
        if all(manager.failure is None for manager in logs.managers) and not self._has_failed_logs():
            return frozenset()
        return frozenset(
            (topic.topic_id, partition.index)
            for topic in self._broker.topics
            for partition in topic.partitions
            if partition.is_failed
        )

    def _has_failed_logs(self) -> bool:
        return any(log.failure is not None for log in self._broker.logs.logs.values())

    def _request(self, failed: Collection[tuple[bytes, int]]) -> FailReplicasRequest:
        topics: dict[bytes, FailedTopic] = {}
        for topic_id, index in sorted(failed):
            topics.setdefault(topic_id, FailedTopic(topic_id=topic_id, partitions=[])).partitions.append(index)
        return FailReplicasRequest(
            broker_id=self._broker.node_id,
            broker_epoch=self._broker.membership.broker_epoch,
            topics=list(topics.values()),
        )

    def _answered(self, _answer: object) -> None:
        """Whatever it was: a look at the cluster says whether to ask again, when the change may have come here."""
        self._is_asking = False
        if not self._is_stopped:
            self._timer = self._broker.loop.call_later(RETRY_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self.look()

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
