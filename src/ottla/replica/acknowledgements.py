"""Who waits for what was appended to a partition to be acknowledged."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.log.errors import LogError
from ottla.replica.machine import ALL

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

NEVER = float("inf")


class CommitWaiter(Protocol):
    """Somebody who waits for what was appended; `token` is what was given with the wait."""

    def committed(self, token: Any, failure: LogError | None) -> None: ...


class Called:
    """A function that waits."""

    __slots__ = ("_done",)

    def __init__(self, done: Callable[[LogError | None], None]) -> None:
        self._done = done

    def committed(self, _token: Any, failure: LogError | None) -> None:
        self._done(failure)


class Acknowledgements:
    """All who wait, by the offset up to which they do; with the time after which they wait no more."""

    def __init__(self, partition: Partition) -> None:
        self._owner = weakref.ref(partition)  # a cycle would never be freed: the collector puts aside what stays
        self.for_write: deque[tuple[int, CommitWaiter, Any, float]] = deque()
        self.for_commit: deque[tuple[int, CommitWaiter, Any, float]] = deque()
        self._failed: list[tuple[CommitWaiter, Any, LogError]] = []  # to be told at the end of the round

    def __len__(self) -> int:
        return len(self.for_write) + len(self.for_commit)

    def wait(self, end_offset: int, acks: int, waiter: CommitWaiter, token: Any, due: float = NEVER) -> None:
        """Tell at the end of a round that what was appended below `end_offset` is acknowledged, or cannot be.

        `due`: when to tell that it takes too long, by the clock of the loop; it counts where there are replicas.
        """
        (self.for_commit if acks == ALL else self.for_write).append((end_offset, waiter, token, due))
        partition = self._owner()
        if partition is not None and not partition.is_touched:
            partition.touch()

    def fail(self, failure: LogError, end_offset: int) -> None:
        """Refuse those who wait for something behind `end_offset`."""
        self._fail(self.for_write, failure, end_offset)
        self.fail_commits(failure, end_offset)

    def fail_commits(self, failure: LogError, end_offset: int) -> None:
        """Refuse those of them who wait for the replicas."""
        self._fail(self.for_commit, failure, end_offset)

    def _fail(self, waiting: deque[tuple[int, CommitWaiter, Any, float]], failure: LogError, end_offset: int) -> None:
        entries = list(waiting)
        waiting.clear()
        for entry in entries:
            if entry[0] <= end_offset:
                waiting.append(entry)
            else:
                self._failed.append((entry[1], entry[2], failure))

    def expire(self, now: float, committed: int, failure: LogError) -> bool:
        """Refuse those who wait for the replicas and whose time is over; whether there are any."""
        waiting = list(self.for_commit)
        if not any(entry[3] <= now for entry in waiting):
            return False
        self.for_commit.clear()
        for entry in waiting:
            if entry[3] <= now and entry[0] > committed:
                self._failed.append((entry[1], entry[2], failure))
            else:
                self.for_commit.append(entry)
        return True

    def tell(self, written: int, committed: int) -> None:
        """Tell those who were refused, and those who wait for no more than what is written or committed."""
        if self._failed:
            failed, self._failed = self._failed, []
            for waiter, token, failure in failed:
                waiter.committed(token, failure)
        waiting = self.for_write
        while waiting and waiting[0][0] <= written:
            _, waiter, token, _ = waiting.popleft()
            waiter.committed(token, None)
        waiting = self.for_commit
        while waiting and waiting[0][0] <= committed:
            _, waiter, token, _ = waiting.popleft()
            waiter.committed(token, None)
