"""Slows down the copying of throttled replicas, as when partitions move. Replicas in sync are never slowed down.

A topic says which of its replicas are throttled. The broker says how fast they may be copied, as the leader and as the
follower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.quotas.quotas import Rate

if TYPE_CHECKING:
    from ottla.broker.config.layers import BrokerSettings
    from ottla.replica.partition import Partition

LEADER = "leader"
FOLLOWER = "follower"
EVERY_REPLICA = "*"


class ReplicationThrottle:
    """One of the two sides on this broker."""

    def __init__(self, side: str, settings: BrokerSettings, node_id: int, steady_ms: Callable[[], int]) -> None:
        self._side = side
        self._settings = settings
        self._node_id = node_id
        self._steady_ms = steady_ms
        config = settings.config
        self._rate = Rate(config.replication_quota_window_num, config.replication_quota_window_size_seconds * 1000)

    def limit(self) -> float | None:
        """Bytes a second; None: as fast as can be."""
        name = f"{self._side}.replication.throttled.rate"
        for layer in (self._settings.of_broker, self._settings.of_cluster, self._settings.static):
            if name in layer:
                try:
                    return float(layer[name])
                except ValueError:
                    return None
        return None

    def counts(self, partition: Partition, replica: int) -> bool:
        """Whether what a replica copies is held back: its topic says so, and it is not in sync."""
        config = partition.log.config
        is_leader = self._side == LEADER
        throttled = (
            config.leader_replication_throttled_replicas
            if is_leader
            else config.follower_replication_throttled_replicas
        )
        if not throttled or replica in partition.in_sync:
            return False
        return EVERY_REPLICA in throttled or f"{partition.index}:{self._node_id}" in throttled

    def record(self, partition: Partition, replica: int, size_bytes: int) -> None:
        if self.counts(partition, replica):
            self._rate.record(size_bytes, self._steady_ms())

    def wait_seconds(self, partition: Partition, replica: int) -> float:
        """In how long a replica may copy more."""
        if not self.counts(partition, replica):
            return 0.0
        limit = self.limit()
        return 0.0 if limit is None else self._rate.throttle_ms(limit, self._steady_ms()) / 1000
