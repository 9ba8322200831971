"""Under which leaders records were written, as far as they were read: what shows that a log is not the one it was.

A leader that is elected without the last records may write others in their place. Who has read those asks the next
leader whether its log has the last of them (KIP-320): by the epoch in which that was written, which is told with the
first fetch from each leader. No I/O.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import itemgetter

from ottla.client.errors import LogTruncated

UNKNOWN = -1
_begin = itemgetter(0)


class LeaderEpochs:
    """Of one partition, from where it is read on. Other threads may ask for what is `before` an offset."""

    __slots__ = ("_checked_epoch", "_trail")

    def __init__(self) -> None:
        self.begin()

    def begin(self, epoch: int = UNKNOWN) -> None:
        """Reading goes on from elsewhere. `epoch` is that of the record before, if it is known."""
        self._trail: tuple[tuple[int, int], ...] = ((UNKNOWN, epoch),)
        """From which offsets on records were written in which epochs. It is never changed, but replaced."""
        self._checked_epoch = UNKNOWN

    def took(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Records were read: from which offsets on they were written in which epochs."""
        for begin in epochs:
            if begin[1] != self._trail[-1][1]:
                self._trail = (*self._trail, begin)

    def before(self, offset: int) -> int:
        """In which epoch the record before an offset was written."""
        trail = self._trail
        return trail[max(bisect_left(trail, offset, key=_begin) - 1, 0)][1]

    def cut(self, offset: int) -> None:
        """What lies behind an offset is read again."""
        self._trail = (self._trail[0], *(one for one in self._trail[1:] if one[0] < offset))

    def forget_before(self, offset: int) -> None:
        """Nobody asks for what comes before it any more."""
        if len(self._trail) > 1:
            self._trail = self._trail[max(bisect_left(self._trail, offset, key=_begin) - 1, 0) :]

    def to_check(self, leader_epoch: int) -> int:
        """What a leader is told in a fetch: the epoch of the record before, if that leader has not seen it to be right.

        One whose epoch is lower does not know what was read: what is known of the cluster is old, or the topic is new.
        """
        last = self._trail[-1][1]
        return last if last <= leader_epoch != self._checked_epoch else UNKNOWN

    def checked(self, leader_epoch: int) -> None:
        """The leader of an epoch has the record before."""
        self._checked_epoch = leader_epoch

    def parted(self, told: LogTruncated) -> LogTruncated:
        """A leader's log has nothing of the epochs behind the one it tells, which ends at its offset: up to where both
        logs are the same, as far as that is known, and the epoch of the record before."""
        later = [begin for begin, one in self._trail if one > told.epoch and begin != UNKNOWN]
        offset = min([told.offset, *later])
        before = self.before(offset)
        return told.at(offset, told.epoch if before == UNKNOWN else min(before, told.epoch))
