"""Who is told when this broker begins or ends to lead or to follow a partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

RoleChanged = Callable[["Partition"], None]


class Roles:
    def __init__(self) -> None:
        self._watchers: list[RoleChanged] = []

    def watch(self, callback: RoleChanged) -> None:
        """Call back with each partition whose role, leader or epoch has changed. `partition.is_leader` tells."""
        self._watchers.append(callback)

    def changed(self, partition: Partition) -> None:
        for callback in self._watchers:
            callback(partition)
