"""Syncs of many logs at a time: what asks while one round is under way waits for the next.

So a busy log is synced as often as the disk can, and no more often.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.log.errors import StorageFailed
from ottla.log.flush import Flush, run_together
from ottla.log.log import Log


class SyncRound:
    """The syncs of one round: `begin`, then `run` on another thread, then `end`.

    `run` blocks and touches no state. Until it has ended, and if it ends in any other way than it should, nothing
    counts as synced.
    """

    def __init__(self, logs: Iterable[Log]) -> None:
        self.results: dict[Log, StorageFailed | None] = {}  # for the logs that are done, with what went wrong
        self._flushes: list[tuple[Log, Flush]] = []
        self._begin(logs)
        self._errors: dict[int, OSError] = dict.fromkeys(
            range(len(self._flushes)), OSError("the sync did not come to its end")
        )

    def _begin(self, logs: Iterable[Log]) -> None:
        for log in logs:
            try:
                flush = log.flusher.begin()
            except StorageFailed as failure:
                self.results[log] = failure
            except OSError as error:  # its files cannot be opened: the others must not wait for them
                self.results[log] = log.stopped(error)
            else:
                if flush is not None:
                    self._flushes.append((log, flush))
                else:  # somebody else has flushed it
                    self.results[log] = None

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to run."""
        return not self._flushes

    def run(self) -> None:
        self._errors = run_together([flush for _, flush in self._flushes])

    def end(self, now_ms: int) -> None:
        """Take note of what was brought to the disk; `results` has all logs then, also when it raises."""
        mistakes: list[Exception] = []
        for number, (log, flush) in enumerate(self._flushes):
            try:
                log.flusher.end(flush, now_ms, self._errors.get(number))
            except StorageFailed as failure:
                self.results[log] = failure
            except Exception as mistake:
                self.results[log] = log.stopped(OSError(str(mistake)))
                mistakes.append(mistake)
            else:  # it may have been deleted meanwhile
                self.results[log] = None if log.failure is None else log.refusal
        if mistakes:
            raise mistakes[0]
