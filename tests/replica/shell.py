"""The broker's part for a partition in tests: a round ends when the test says so."""

from __future__ import annotations

from ottla.log.log import Log
from ottla.replica.machine import Role
from ottla.replica.partition import Partition
from ottla.replica.shell import Shell


class ManualShell:
    def __init__(self, *, waits_for_disk: bool = False) -> None:
        self.waits_for_disk = waits_for_disk
        self.touched: list[Partition] = []
        self.to_sync: list[Partition] = []
        self.timed: list[tuple[Partition, float]] = []
        self.roles: list[tuple[Role, int, int]] = []  # with leader and epoch
        self.proposed: list[frozenset[int]] = []
        self.has_deadlines = False
        self.is_cut_off = False

    def is_cut_off_from(self, _replicas: object) -> bool:
        return self.is_cut_off

    def touch(self, partition: Partition) -> None:
        self.touched.append(partition)

    def sync(self, partition: Partition) -> None:
        self.to_sync.append(partition)

    def sync_within(self, partition: Partition, seconds: float) -> None:
        self.timed.append((partition, seconds))

    def role_changed(self, partition: Partition) -> None:
        self.roles.append((partition.machine.role, partition.leader_id, partition.leader_epoch))

    def propose(self, partition: Partition, in_sync: frozenset[int]) -> None:
        self.proposed.append(in_sync)

    def watch_deadlines(self, partition: Partition) -> None:
        self.has_deadlines = True

    def end_round(self) -> None:
        while self.touched:
            self.touched.pop(0).end_round()


def sole_leader(
    log: Log, shell: Shell, *, node_id: int = 1, epoch: int = 0, topic: str = "t", index: int = 0
) -> Partition:
    """A partition that has one replica, and leads."""
    partition = Partition(topic, index, bytes(16), log, node_id, shell)
    partition.apply(
        leader_id=node_id, leader_epoch=epoch, partition_epoch=0, replicas=[node_id], in_sync=[node_id], now_ms=0
    )
    return partition
