"""The row of segments that a log is made of, and the files that have left it but not the disk."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from operator import attrgetter
from typing import overload
from weakref import ref

from ottla.log.aborted import AbortedRanges, AbortedTransaction
from ottla.log.behind_rot import SEARCHED_BYTES, locate_behind
from ottla.log.errors import RottenBatch
from ottla.log.files import FileRange, Files
from ottla.log.segment import LOG, Segment
from ottla.records.batch import HEADER_SIZE, read_header

NEVER = 1 << 62
MOST_LENT = 500  # segments of a log that goes, of which answers may hold some
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
        self._deleted: list[tuple[int, Segment]] = []  # when their files go
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
        """Bytes of batches from the one that holds `offset` on, below `bound`, in a log that ends at `end_offset`.

        RottenBatch if the batch that holds `offset` is not there any more.
        """
        for number in range(self.number_for(offset), len(self._row)):
            segment = self._row[number]
            is_last = number + 1 == len(self._row)
            following = end_offset if is_last else self._bases[number + 1]
            place = self._locate(segment, offset)
            if place is not None:
                end_position = segment.size_bytes if bound >= following else self._end_before(segment, bound)
                return segment.range_at(place, max_bytes, end_position, whole_batch=whole_batch)
            if is_last and offset < min(bound, end_offset) and segment.size_bytes:
                raise RottenBatch(segment.path(LOG), segment.size_bytes, f"the file ends before offset {offset}")
            if bound <= following:
                return None  # what is next is not to be read yet
        return None

    @staticmethod
    def _locate(segment: Segment, offset: int) -> tuple[int, int, int] | None:
        """Where the batch is that holds `offset`, or the next one that is not rotten."""
        try:
            return segment.locate(offset)
        except RottenBatch as rotten:
            found = locate_behind(segment, rotten, offset)
            if found is None or found[2] > offset:
                raise
            return found

    @staticmethod
    def _end_before(segment: Segment, bound: int) -> int:
        """Where what may be read ends, or what is rotten begins if nothing is known behind that."""
        try:
            return segment.position_of(bound)
        except RottenBatch as rotten:
            found = locate_behind(segment, rotten, bound)
            return rotten.since if found is None else found[0]

    def offset_behind(self, offset: int, end_offset: int) -> int:
        """Where what can be read goes on, if the batch at `offset` is rotten."""
        number = self.number_for(offset)
        segment = self._row[number]
        following = self._bases[number + 1] if number + 1 < len(self._row) else end_offset
        rotten = None
        try:
            place = segment.locate(offset)
        except RottenBatch as error:
            rotten = error
        else:
            if place is None:
                return max(following, offset + 1)
            next_offset = read_header(segment.read_batch(place[0], HEADER_SIZE)).next_offset
            if offset < next_offset <= following:
                return next_offset
            rotten = RottenBatch(segment.path(LOG), place[0], f"next offset {next_offset}")
        found = locate_behind(segment, rotten, offset)
        if found is not None:
            return max(found[2], offset + 1)
        indexed = segment.offset_index.offset_from(rotten.since + SEARCHED_BYTES)
        return max(following if indexed is None else min(indexed, following), offset + 1)

    def bound_of(self, read: FileRange, offset: int, end_offset: int) -> int:
        """An offset behind all that was read from `offset` on, near enough to tell which transactions may be in it."""
        for number in range(self.number_for(offset), len(self._row)):
            segment = self._row[number]
            if segment is read.owner:
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
            self._deleted.append((removal_ms, segment))

    def due_removals(self, now_ms: int, latest_ms: int = NEVER) -> list[str]:
        """Files to remove now, on any thread; each is handed out once.

        `latest_ms`: what would be due behind it was put off before the clock was set back.
        """
        due = [(ref(segment), segment.paths()) for when, segment in self._deleted if not now_ms < when <= latest_ms]
        self._deleted = [entry for entry in self._deleted if now_ms < entry[0] <= latest_ms]
        for known, _ in due:
            segment = known()
            if segment is not None:  # somebody else has it
                segment.leave_to_readers()
        return [path for _, paths in due for path in paths]

    def retire(self) -> None:
        """The folder goes with all that is in it, and another of its name may come.

        What waits to be sent keeps its file, of the newest segments; as long as one is open, the disk does not get its
        room back.
        """
        for old in self._row[:-MOST_LENT]:
            old.is_retired = True
            old.close()
        going = [ref(segment) for segment in (*self._row[-MOST_LENT:], *(segment for _, segment in self._deleted))]
        self._row[-MOST_LENT:] = [segment.stand_in() for segment in self._row[-MOST_LENT:]]
        self.active, self._deleted = self._row[-1], []
        for known in going:
            segment = known()
            if segment is not None:  # somebody else has it
                segment.leave_to_readers()

    def close(self) -> None:
        for segment in self._row:
            segment.close()
