"""The leader epochs of one log: with which offset each began (KIP-101, KIP-279).

A replica that comes back finds with it where its log parts from the leader's. A young log has no file of them, since
its batches say it all; once `save` has made the file, it follows every change.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_right

from ottla.log.checkpoint import LEADER_EPOCHS, CorruptCheckpoint, format_epochs, parse_epochs
from ottla.log.files import Files

UNDEFINED = (-1, -1)


class LeaderEpochs:
    __slots__ = ("_files", "entries", "has_file", "latest", "path", "unsynced")

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.path = f"{folder}/{LEADER_EPOCHS}"
        self.entries: list[tuple[int, int]] = []
        self.latest = -1
        self.has_file = False
        self.unsynced = False  # changed since the last flush of the log

    @classmethod
    def load(cls, files: Files, folder: str) -> LeaderEpochs | None:
        """What the file says; None if there is none that can be read, and the batches must say it."""
        epochs = cls(files, folder)
        try:
            for epoch, start_offset in parse_epochs(files.read_all(epochs.path)):
                epochs.add(epoch, start_offset)
        except (FileNotFoundError, CorruptCheckpoint):
            return None
        epochs.has_file = True
        return epochs

    def save(self) -> None:
        """Have a file from now on."""
        if not self.has_file:
            self.write()

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` begins at `start_offset`; what contradicts it is older and goes."""
        before = self.entries.copy()
        if self.add(epoch, start_offset):
            try:
                self._changed()
            except OSError:
                self.entries = before
                self.latest = before[-1][0] if before else -1
                raise

    def add(self, epoch: int, start_offset: int) -> bool:
        """As `assign`, but the file stays as it is; whether anything changed."""
        entries = self.entries
        if entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset:
            return False
        while entries and (entries[-1][0] >= epoch or entries[-1][1] >= start_offset):
            entries.pop()
        entries.append((epoch, start_offset))
        self.latest = epoch
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch known up to `epoch`, and the offset where the next one begins."""
        entries = self.entries
        if epoch == -1 or not entries or epoch > entries[-1][0]:
            return UNDEFINED
        if epoch == entries[-1][0]:
            return epoch, log_end_offset
        following = bisect_right(entries, epoch, key=lambda entry: entry[0])
        if following == 0:
            return epoch, entries[0][1]
        return entries[following - 1][0], entries[following][1]

    def epoch_at(self, offset: int) -> int:
        """The epoch that `offset` was written in, -1 where that is not known."""
        found = bisect_right(self.entries, offset, key=lambda entry: entry[1])
        return self.entries[found - 1][0] if found else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at or behind the end of the log."""
        if self.forget_from(end_offset):
            self._changed()

    def forget_from(self, offset: int) -> bool:
        """As `truncate_from_end`, but the file stays as it is; whether anything changed."""
        before = len(self.entries)
        while self.entries and self.entries[-1][1] >= offset:
            self.entries.pop()
        self.latest = self.entries[-1][0] if self.entries else -1
        return len(self.entries) != before

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget the epochs that ended before the log starts; the one in force there begins there."""
        following = bisect_right(self.entries, start_offset, key=lambda entry: entry[1])
        if following and self.entries[0][1] < start_offset:
            self.entries[:following] = [(self.entries[following - 1][0], start_offset)]
            with contextlib.suppress(OSError):  # room is made on a full disk too; opening forgets them again
                self._changed()

    def clear(self) -> None:
        if self.entries:
            self.entries = []
            self._changed()

    def _changed(self) -> None:
        self.latest = self.entries[-1][0] if self.entries else -1
        if self.has_file:
            self.write()

    def write(self, *, durable: bool = False) -> None:
        self._files.replace(self.path, format_epochs(self.entries), durable=durable)
        self.has_file = True
        self.unsynced = not durable
