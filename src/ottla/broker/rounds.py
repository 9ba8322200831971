"""The partitions at the end of a round of the loop, and the syncs that acknowledgements wait for.

All that was appended in a round is written, answered and told to readers when the round ends, and all that waits for
the disk at one time is brought there in one round of syncs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.events import Events
from ottla.broker.roles import Roles
from ottla.log.sync import SyncRound

if TYPE_CHECKING:
    from ottla.broker.loop.loop import Loop, Timer
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

DEADLINE_SECONDS = 0.1  # how late somebody may be told that replicas take too long
Propose = Callable[["Partition", frozenset[int]], None]


class Rounds:
    """What partitions see of the broker's loop (ottla.replica.shell.Shell)."""

    def __init__(
        self,
        loop: Loop,
        *,
        waits_for_disk: bool = False,
        roles: Roles | None = None,
        propose: Propose = lambda _partition, _in_sync: None,
        is_cut_off_from: Callable[[Collection[int]], bool] = lambda _replicas: False,
        clock_ms: Callable[[], int] | None = None,
    ) -> None:
        """`propose`: has the controller decide on an in-sync set. `is_cut_off_from`: as a partition asks it."""
        self.waits_for_disk = waits_for_disk
        self.touched: list[Partition] = []  # in this round
        self.now_ms = 0  # the time of this round, if somebody has asked for it
        self._is_ending = False
        self._loop = loop
        self._clock_ms = clock_ms or loop.system.clock_ms
        self._unsynced: dict[Partition, None] = {}  # to be synced in the next round of syncs
        self._syncing: SyncRound | None = None
        self._timed: set[Partition] = set()  # to be synced when their flush.ms is over
        self._with_deadlines: dict[Partition, None] = {}  # where somebody waits for replicas
        self._expires: Timer | None = None
        self._roles = roles or Roles()
        self.propose = propose
        self.is_cut_off_from = is_cut_off_from

    def touch(self, partition: Partition) -> None:
        if not self._is_ending:
            self._end_soon()
        self.touched.append(partition)

    def look_at_clock(self) -> int:
        """The time of this round: what is appended in it was appended at one time."""
        if not self._is_ending:
            self._end_soon()
        self.now_ms = self._clock_ms()
        return self.now_ms

    def _end_soon(self) -> None:
        self._is_ending = True
        self._loop.call_last(self.end)

    def write(self) -> None:
        """Write what was gathered so far: a request that is no produce request sees all that came before it."""
        for partition in self.touched:
            partition.writer.write_gathered()

    def end(self) -> None:
        touched, self.touched = self.touched, []
        self._is_ending, self.now_ms = False, 0
        for partition in touched:
            try:
                partition.end_round()
            except Exception:  # a mistake with one partition must not keep the others from their answers
                events.failure("the end of a round failed", partition=partition.name)

    def role_changed(self, partition: Partition) -> None:
        self._roles.changed(partition)

    def watch_deadlines(self, partition: Partition) -> None:
        if not self._with_deadlines:
            self._expires = self._loop.call_later(DEADLINE_SECONDS, self._expire)
        self._with_deadlines[partition] = None

    def _expire(self) -> None:
        now, partitions = self._loop.now(), list(self._with_deadlines)
        self._with_deadlines.clear()
        for partition in partitions:
            if partition.expire(now):
                self.watch_deadlines(partition)

    @property
    def is_at_rest(self) -> bool:
        """Whether all that was appended is told, and on the disk where that is asked for."""
        return not self.touched and not self._unsynced and self._syncing is None

    def stop(self) -> None:
        """Nobody waits any more."""
        if self._expires is not None:
            self._expires.cancel()

    # The disk

    def sync(self, partition: Partition) -> None:
        self._unsynced[partition] = None
        if self._syncing is None and len(self._unsynced) == 1:
            self._loop.call_soon(self._sync)

    def sync_within(self, partition: Partition, seconds: float) -> None:
        if partition not in self._timed:
            self._timed.add(partition)
            self._loop.call_later(seconds, partial(self._due, partition))

    def _due(self, partition: Partition) -> None:
        self._timed.discard(partition)
        self.sync(partition)

    def _sync(self) -> None:
        """Start the next round of syncs, unless one is under way: then its end will."""
        if self._syncing is not None or not self._unsynced:
            return
        partitions, self._unsynced = list(self._unsynced), {}
        under_way = SyncRound(partition.log for partition in partitions)
        if under_way.is_over:
            self._tell(under_way, partitions)
            return
        self._syncing = under_way
        self._loop.run_blocking(under_way.run, lambda _failure: self._synced(under_way, partitions))

    def _synced(self, finished: SyncRound, partitions: list[Partition]) -> None:
        self._syncing = None
        try:
            finished.end(self._loop.system.clock_ms())
        finally:  # a mistake with one log must not keep the others from their answers
            self._tell(finished, partitions)
            self._sync()

    @staticmethod
    def _tell(finished: SyncRound, partitions: list[Partition]) -> None:
        for partition in partitions:
            partition.synced(finished.results.get(partition.log))  # none where its log was moved meanwhile
