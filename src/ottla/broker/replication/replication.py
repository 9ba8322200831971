"""The replicas of this broker: each follower has a fetcher, and each leader an eye on those who are behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.loop.loop import Timer
from ottla.broker.network.peer import Peer
from ottla.broker.replication.fetcher import Fetcher, FetchSettings
from ottla.broker.replication.in_sync import AsksController, InSyncProposals
from ottla.broker.replication.throttle import FOLLOWER, ReplicationThrottle
from ottla.replica.machine import Role

if TYPE_CHECKING:
    from ottla.broker.config.layers import BrokerSettings
    from ottla.broker.loop.loop import Loop
    from ottla.broker.network.peers import Peers
    from ottla.replica.partition import Partition

LANE = "replication"
LOOKS = 4  # for followers that are behind, in the time that they may be
JOIN_SECONDS = 0.5  # between two looks for those who wait and are not in sync


class Replication:
    def __init__(
        self,
        loop: Loop,
        settings: BrokerSettings,
        node_id: int,
        peers: Peers,
        membership: Callable[[], AsksController],
    ) -> None:
        """`membership`: there once the broker has registered."""
        self._loop = loop
        self._settings = settings
        self._node_id = node_id
        self._peers = peers
        self._membership = membership
        self._fetchers: dict[int, Fetcher] = {}  # by leader
        self._leaders: dict[Partition, int] = {}  # of those that are followed
        self._led: dict[Partition, None] = {}  # that have other replicas
        self._proposals = InSyncProposals(loop, node_id, membership)
        self._throttle = ReplicationThrottle(FOLLOWER, settings, node_id, loop.steady_ms)
        self._timer: Timer | None = None
        self._lag_due = 0.0  # when to look for followers that are behind
        self._is_stopped = False

    @property
    def has_replicas(self) -> bool:
        """Whether partitions are followed here, or followed by others."""
        return bool(self._leaders or self._led)

    def role_changed(self, partition: Partition) -> None:
        """Follow it, or stop to; called after every change of its role, leader or epoch."""
        if self._is_stopped:
            return
        leader_id = partition.leader_id if partition.machine.role is Role.FOLLOWER else None
        before = self._leaders.pop(partition, None)
        if before is not None and before != leader_id:
            self._leave(before, partition)
        if leader_id is not None:
            self._leaders[partition] = leader_id
            self._fetcher(leader_id).follow(partition)
        if partition.is_leader:
            self._watch_lag(partition)
        else:
            self._led.pop(partition, None)

    def forget(self, partition: Partition) -> None:
        """It was deleted."""
        self._led.pop(partition, None)
        leader_id = self._leaders.pop(partition, None)
        if leader_id is not None:
            self._leave(leader_id, partition)

    def _leave(self, leader_id: int, partition: Partition) -> None:
        self._fetchers[leader_id].leave(partition)

    def _fetcher(self, leader_id: int) -> Fetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(
                self._loop,
                leader_id,
                self._node_id,
                peer=partial(self._peer, leader_id),
                broker_epoch=lambda: self._membership().broker_epoch,
                settings=self._fetch_settings,
                may_fetch=lambda partition: self._throttle.wait_seconds(partition, self._node_id),
                fetched=lambda partition, size_bytes: self._throttle.record(partition, self._node_id, size_bytes),
            )
        return fetcher

    def _peer(self, leader_id: int) -> Peer:
        return self._peers.to(leader_id, LANE)

    def _fetch_settings(self) -> FetchSettings:
        config = self._settings.config
        return FetchSettings(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            partition_max_bytes=config.replica_fetch_max_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            most_backoff_ms=config.replica_fetch_backoff_ms,
            timeout_ms=config.replica_socket_timeout_ms,
        )

    # Who is in sync

    def propose(self, partition: Partition, in_sync: frozenset[int]) -> None:
        self._proposals.propose(partition, in_sync)

    def _watch_lag(self, partition: Partition) -> None:
        if len(partition.replicas) > 1:
            self._led[partition] = None
            if self._timer is None:
                self._set_timer()
        else:
            self._led.pop(partition, None)

    def _set_timer(self) -> None:
        seconds = max(min(self._settings.config.replica_lag_time_max_ms / 1000 / LOOKS, JOIN_SECONDS), 0.01)
        self._timer = self._loop.call_later(seconds, self._look_at_followers)

    def _look_at_followers(self) -> None:
        self._timer = None
        for partition in list(self._led):
            partition.look_at_followers()
        if self._loop.now() >= self._lag_due:
            self._look_at_lag()
        if self._led and not self._is_stopped:
            self._set_timer()

    def _look_at_lag(self) -> None:
        now_ms, most_lag_ms = self._loop.steady_ms(), self._settings.config.replica_lag_time_max_ms
        self._lag_due = self._loop.now() + most_lag_ms / 1000 / LOOKS
        for partition in list(self._led):
            partition.look_at_lag(now_ms, most_lag_ms)

    def stop(self) -> None:
        self._is_stopped = True
        self._proposals.stop()
        if self._timer is not None:
            self._timer.cancel()
        for fetcher in self._fetchers.values():
            fetcher.stop()
