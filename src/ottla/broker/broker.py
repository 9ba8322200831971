"""The broker: what handlers work with, and the order in which it starts and stops."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.loop import Loop
from ottla.broker.topics import Topics
from ottla.log.commit import GroupCommit, Round
from ottla.log.files import Files
from ottla.log.housekeeping import Housekeeping
from ottla.log.manager import LogManager
from ottla.wire.header import RequestHeader

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

logger = logging.getLogger("ottla.broker")


class Broker:
    """Everything that belongs to one broker and its one thread."""

    def __init__(self, loop: Loop, files: Files, folder: str, *, node_id: int = 1, syncs: bool = False) -> None:
        self.loop = loop
        self.node_id = node_id
        self.waits_for_disk = syncs
        self.topics = Topics()
        self.logs = LogManager(files, folder)
        self.fetch_sessions = FetchSessions()
        self._commit = GroupCommit()
        self._round: Round | None = None
        self._housekeeping: Housekeeping | None = None

    def clock_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def report_bug(self, header: RequestHeader) -> None:
        """A handler failed in a way nobody thought of: say all that is known, once."""
        logger.exception("%s v%d from %r failed", header.api.name, header.version, header.client_id)

    # Waiting for the disk

    def when_on_disk(self, partitions: list[tuple[Partition, int]], done: Callable[[set[Partition]], None]) -> None:
        """Call back when each partition is on the disk up to its offset; with those that cannot be."""
        failed: set[Partition] = set()
        left = len(partitions)

        def one_done(partition: Partition, failure: Exception | None) -> None:
            nonlocal left
            left -= 1
            if failure is not None:
                failed.add(partition)
            if left == 0:
                done(failed)

        for partition, end_offset in partitions:
            self._commit.wait_for(
                partition.log,
                end_offset,
                lambda failure, partition=partition: one_done(partition, failure),  # type: ignore[misc]
            )
        if self._round is None:
            self.loop.call_soon(self._sync)

    def _sync(self) -> None:
        """Start the next round of syncs, unless one is under way: then its end will."""
        if self._round is not None:
            return
        self._round = under_way = self._commit.begin()
        if under_way is not None:
            self.loop.run_blocking(under_way.run, lambda _failure: self._synced(under_way))

    def _synced(self, finished: Round) -> None:
        self._round = None
        self._commit.end(finished, self.clock_ms())
        if len(self._commit):
            self._sync()
