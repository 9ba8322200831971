"""The row of segments that a log is made of, and the files that have left it but not the disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from operator import attrgetter
from typing import overload

from ottla.log.aborted import AbortedRanges, AbortedTransaction
from ottla.log.files import FileRange, Files
from ottla.log.segment import Segment

NEVER = 1 << 62
ABORTS_A_STEP = 5000
MOST_ABORTS = 5000  # that one who reads is told of at once, and those that were open then
_last_offset, _last_stable_offset = attrgetter("last_offset"), attrgetter("last_stable_offset")


class Segments(Sequence[Segment]):
    """In the order of their offsets, never empty; the last is the active one."""

    def __init__(self, files: Files, folder: str, row: list[Segment]) -> None:
        self.layout_version = 0  # rises when sealed segments change, so that compaction knows
        self.names_changed = True  # in the folder, since it was last synced
        self._files = files
        self._folder = folder
        self._row = row
        for segment in row[:-1]:
            segment.is_full = True
        self._bases = [segment.base_offset for segment in row]
        self._deleted: list[tuple[int, list[str]]] = []
        self.active = row[-1]

    @overload
    def __getitem__(self, number: int) -> Segment: ...

    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...

    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self._row[number]

    def __len__(self) -> int:
        return len(self._row)

    def number_for(self, offset: int) -> int:
        """Which segment holds `offset`, if any does."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def starting_at(self, offset: int) -> Iterator[Segment]:
        """The segments that may hold `offset` or what comes after it."""
        yield from self._row[self.number_for(offset) :]

    # Reading

    def read(self, offset: int, max_bytes: int, bound: int, end_offset: int, *, whole_batch: bool) -> FileRange | None:
        """Bytes of batches from the one that holds `offset` on, below `bound`, in a log that ends at `end_offset`."""
        for number in range(self.number_for(offset), len(self._row)):
            segment = self._row[number]
            following = self._bases[number + 1] if number + 1 < len(self._row) else end_offset
            end_position = segment.size_bytes if bound >= following else segment.position_of(bound)
            found = segment.read(offset, max_bytes, end_position, whole_batch=whole_batch)
            if found is not None:
                return found
            if bound <= following or segment.locate(offset) is not None:
                return None  # what is next is not to be read yet, or too large: what comes after it must wait
        return None

    def bound_of(self, read: FileRange, offset: int, end_offset: int) -> int:
        """An offset behind all that was read from `offset` on, near enough to tell which transactions may be in it."""
        for number in range(self.number_for(offset), len(self._row)):
            segment = self._row[number]
            if segment.file is read.file:
                bound = segment.offset_index.offset_from(read.position + read.size_bytes)
                following = self._bases[number + 1] if number + 1 < len(self._row) else end_offset
                return following if bound is None else bound
        return end_offset

    def aborted_transactions(self, offset: int, bound: int) -> list[AbortedTransaction]:
        """The aborted transactions with records from `offset` on and below `bound`."""
        found = []
        for segment in self.starting_at(offset):
            entries = segment.aborted.entries  # there may be very many
            first = bisect_left(entries, offset, key=_last_offset)
            last = bisect_left(entries, bound, lo=first, key=_last_stable_offset)
            found += [entry for entry in entries[first : last + 1] if entry.first_offset < bound]
            if last < len(entries):
                return found
        return found

    def bound_by_aborts(self, offset: int, bound: int) -> int:
        """Up to where a reader may go from `offset` on, so that it need not be told of very many aborts at once."""
        entries = self._row[self.number_for(offset)].aborted.entries
        if len(entries) <= MOST_ABORTS:
            return bound
        last = bisect_left(entries, offset, key=_last_offset) + MOST_ABORTS
        return bound if last >= len(entries) else min(bound, entries[last].last_offset + 1)

    def aborted_ranges(self, offset: int, bound: int) -> Generator[None, None, AbortedRanges]:
        """The same by where they lie, in steps."""
        ranges = AbortedRanges()
        for segment in list(self.starting_at(offset)):
            entries = segment.aborted.entries
            first = bisect_left(entries, offset, key=_last_offset)
            last = bisect_left(entries, bound, lo=first, key=_last_stable_offset)
            for start in range(first, min(last + 1, len(entries)), ABORTS_A_STEP):
                some = entries[start : min(start + ABORTS_A_STEP, last + 1)]
                ranges.add(entry for entry in some if entry.first_offset < bound)
                yield
            if last < len(entries):
                break
        return ranges

    # Coming

    def create(self, base_offset: int, now_ms: int, index_interval_bytes: int) -> Segment:
        """Start a new active segment."""
        segment = Segment(
            self._files, self._folder, base_offset, created_ms=now_ms, index_interval_bytes=index_interval_bytes
        )
        segment.append(b"")
        if self._row:
            self.active.seal()
        self._row.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self.names_changed = True
        return segment

    def replace(self, old: list[Segment], new: list[Segment], removal_ms: int) -> None:
        """Put complete segments, which have the swap suffix, in the place of others; those go later."""
        first = self._row.index(old[0])
        self._row[first : first + len(old)] = new
        for segment in new:
            segment.seal()
        self._bases = [segment.base_offset for segment in self._row]
        self._schedule_deletion(old, removal_ms)
        for segment in new:
            segment.change_suffix("")

    # Going

    def remove_last(self, removal_ms: int) -> None:
        """Take the newest segment out. Its files go later. The caller sees that one is left."""
        segment = self._row.pop()
        self._bases.pop()
        self._schedule_deletion([segment], removal_ms)
        if self._row:
            self.active = self._row[-1]
            self.active.is_full = False

    def remove_first(self, count: int, removal_ms: int) -> None:
        """Take the oldest segments out. Their files go later, for the sake of readers."""
        removed = self._row[:count]
        del self._row[:count], self._bases[:count]
        self._schedule_deletion(removed, removal_ms)

    def _schedule_deletion(self, segments: list[Segment], removal_ms: int) -> None:
        self.layout_version += 1
        self.names_changed = True
        for segment in segments:
            segment.mark_deleted()
            segment.close()
            self._deleted.append((removal_ms, segment.paths()))

    def due_removals(self, now_ms: int, latest_ms: int = NEVER) -> list[str]:
        """Files to remove now, on any thread; each is handed out once.

        `latest_ms`: what would be due behind it was put off before the clock was set back.
        """
        due = [paths for when, paths in self._deleted if not now_ms < when <= latest_ms]
        self._deleted = [entry for entry in self._deleted if now_ms < entry[0] <= latest_ms]
        return [path for paths in due for path in paths]

    def close(self) -> None:
        for segment in self._row:
            segment.close()
