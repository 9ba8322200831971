"""Group commit: acknowledgements that wait for the disk, many of them for one sync.

Appends ask for a callback when their log is on the disk up to an offset. While one round of syncs is under way,
further requests gather for the next, so a busy log syncs as often as the disk can and no more often.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ottla.log.errors import StorageFailed
from ottla.log.flush import Flush, run_together
from ottla.log.log import Log

Acknowledge = Callable[[StorageFailed | None], None]


class Round:
    """The syncs of one round. `run` blocks and touches no state: it is for another thread.

    Until it has ended, and if it ends in any other way than it should, nothing counts as synced.
    """

    def __init__(self, flushes: list[tuple[Log, Flush]]) -> None:
        self.flushes = flushes
        self.errors = dict.fromkeys(range(len(flushes)), OSError("the sync did not come to its end"))

    def run(self) -> None:
        self.errors = run_together([flush for _, flush in self.flushes])


class GroupCommit:
    def __init__(self) -> None:
        self._waiting: dict[Log, deque[tuple[int, Acknowledge]]] = {}
        self._dirty: dict[Log, None] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def wait_for(self, log: Log, end_offset: int, acknowledge: Acknowledge) -> None:
        """Call back when all below `end_offset` is on the disk, or with the error when that cannot be."""
        if log.recovery_point >= end_offset:
            acknowledge(None)
            return
        self._waiting.setdefault(log, deque()).append((end_offset, acknowledge))
        self._dirty[log] = None

    def begin(self) -> Round | None:
        """The syncs that are due for all that waits; None when nothing does."""
        flushes = []
        for log in self._dirty:
            try:
                flush = log.begin_flush()
            except StorageFailed as failure:
                self._fail(log, failure)
            except OSError as error:  # its files cannot be opened: the others must not wait for them
                self._fail(log, log.stopped(error))
            else:
                if flush is not None:
                    flushes.append((log, flush))
                else:  # somebody else has flushed it
                    self._acknowledge(log)
        self._dirty = {}
        return Round(flushes) if flushes else None

    def end(self, finished: Round, now_ms: int) -> None:
        """Acknowledge what a round has brought to the disk."""
        for number, (log, flush) in enumerate(finished.flushes):
            try:
                log.end_flush(flush, now_ms, finished.errors.get(number))
            except StorageFailed as failure:
                self._fail(log, failure)
            else:
                self._acknowledge(log)
                if log.failure is not None:  # it was deleted
                    self._fail(log, StorageFailed(log.failure))

    def _acknowledge(self, log: Log) -> None:
        """Answer all who wait for what is on the disk."""
        waiting = self._waiting.get(log, deque())
        while waiting and waiting[0][0] <= log.recovery_point:
            waiting.popleft()[1](None)
        if not waiting:
            self._waiting.pop(log, None)

    def _fail(self, log: Log, failure: StorageFailed) -> None:
        for _, acknowledge in self._waiting.pop(log, ()):
            acknowledge(failure)
