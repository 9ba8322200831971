"""Which acknowledgements wait for the disk, and the syncs they wait for: as many as can be in one round.

A broker that was told so waits for each write. Otherwise the settings of the topic decide: `flush.messages` lets
so many records wait for a sync, and `flush.ms` lets them wait for so long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.log.commit import Acknowledge, GroupCommit, Round
from ottla.log.errors import StorageFailed
from ottla.log.log import Log

if TYPE_CHECKING:
    from ottla.broker.loop import Loop
    from ottla.replica.partition import Partition


class Durability:
    def __init__(self, loop: Loop, *, waits_for_all: bool) -> None:
        self.waits_for_all = waits_for_all
        self._loop = loop
        self._commit = GroupCommit()
        self._round: Round | None = None
        self._timed: set[Log] = set()  # to be synced when their flush.ms is over

    def must_wait(self, log: Log) -> bool:
        """Something was appended to a log: whether it may be acknowledged only when it is on the disk.

        If not, but it may not stay in memory for ever, it is synced in time.
        """
        if not (self.waits_for_all or log.config.has_flush_limits) or log.recovery_point >= log.end_offset:
            return False
        config = log.config
        if self.waits_for_all or log.end_offset - log.recovery_point >= config.flush_messages or not config.flush_ms:
            return True
        if config.has_flush_time and log not in self._timed:
            self._timed.add(log)
            self._loop.call_later(config.flush_ms / 1000, partial(self._flush, log))
        return False

    def _flush(self, log: Log) -> None:
        self._timed.discard(log)
        self._wait_for(log, log.end_offset, lambda _failure: None)  # the log has noted it, if it fails

    def when_committed(self, partition: Partition, end_offset: int, done: Acknowledge) -> None:
        """Call back when what was appended below `end_offset` is kept as the settings ask, or cannot be."""
        if self.must_wait(partition.log):
            self._wait_for(partition.log, end_offset, done)
        else:
            done(None)

    def when_on_disk(self, partitions: list[tuple[Partition, int]], done: Callable[[set[Partition]], None]) -> None:
        """Call back when each partition is on the disk up to its offset; with those that cannot be."""
        failed: set[Partition] = set()
        left = len(partitions)

        def one_done(partition: Partition, failure: StorageFailed | None) -> None:
            nonlocal left
            left -= 1
            if failure is not None:
                failed.add(partition)
            if left == 0:
                done(failed)

        for partition, end_offset in partitions:
            self._wait_for(partition.log, end_offset, partial(one_done, partition))

    def _wait_for(self, log: Log, end_offset: int, acknowledge: Acknowledge) -> None:
        self._commit.wait_for(log, end_offset, acknowledge)
        if self._round is None and len(self._commit):
            self._loop.call_soon(self._sync)

    def _sync(self) -> None:
        """Start the next round of syncs, unless one is under way: then its end will."""
        if self._round is not None:
            return
        self._round = under_way = self._commit.begin()
        if under_way is not None:
            self._loop.run_blocking(under_way.run, lambda _failure: self._synced(under_way))

    def _synced(self, finished: Round) -> None:
        self._round = None
        self._commit.end(finished, self._loop.system.clock_ms())
        if len(self._commit):
            self._sync()
