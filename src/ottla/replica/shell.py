"""The broker, as far as a partition needs it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ottla.replica.partition import Partition


class Shell(Protocol):
    @property
    def waits_for_disk(self) -> bool:
        """Whether nothing is acknowledged before it is on the disk, whatever the topic says."""

    def is_cut_off_from(self, replicas: Collection[int]) -> bool:
        """Whether these may take this broker for dead, and have given what it leads to one of them."""

    def touch(self, partition: Partition) -> None:
        """Call `end_round` of the partition at the end of this round of the loop."""

    def sync(self, partition: Partition) -> None:
        """Bring the log to the disk, then call `synced`."""

    def sync_within(self, partition: Partition, seconds: float) -> None:
        """The same, but only in so long."""

    def role_changed(self, partition: Partition) -> None:
        """It leads, follows or does neither, in another epoch or under another leader than before."""

    def propose(self, partition: Partition, in_sync: frozenset[int]) -> None:
        """Have the controller decide on an in-sync set."""

    def watch_deadlines(self, partition: Partition) -> None:
        """Call `expire` of the partition now and then, as long as somebody waits there."""
