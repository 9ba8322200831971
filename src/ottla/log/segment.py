"""A segment: one .log file of batches, named by its first offset, with its indexes beside it."""

from __future__ import annotations

import errno
import struct
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from copy import copy
from weakref import WeakSet

from ottla.log.aborted import AbortedIndex
from ottla.log.errors import FULL, CorruptLog, RottenBatch
from ottla.log.files import Buffer, File, FileRange, Files, remove_all
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.records.batch import (
    HEADER,
    HEADER_SIZE,
    LEAST_LENGTH,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_SIZE,
    BatchHeader,
    read_header,
)
from ottla.records.codec import index_batches

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
ABORTED_INDEX = ".txnindex"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

LARGEST_RELATIVE_OFFSET = 2**31 - 1
LOOK_BYTES = 4096
SCAN_BYTES = 1 << 20
MOST_INDEX_INTERVAL_BYTES = 1 << 17
"""Index entries are at least as dense as that, whatever the topic says: a search goes from one to the next."""
MOST_OPEN = 500
"""Full segments whose files are open, of all logs together: a topic may have very many."""
INDEXES = (INDEX, TIME_INDEX, ABORTED_INDEX)

# Base offset, length, magic and last offset delta: all that a search by offset needs of a header.
_PLACE = struct.Struct(">qi4xb6xi")


def name_of(base_offset: int) -> str:
    return f"{base_offset:020d}"


_open: OrderedDict[Segment, None] = OrderedDict()  # the full ones, each once, in the order in which they were opened
_left: WeakSet[Segment] = WeakSet()  # those whose files are gone, and still open


class Segment:
    """Readers share it, one writer appends. What is on disk may be ahead of the indexes, never behind."""

    __slots__ = (
        "__weakref__",
        "_file",
        "_files",
        "_first_timestamp",
        "_is_unlinked",
        "_stem",
        "_suffix",
        "_unindexed_bytes",
        "aborted",
        "base_offset",
        "created_ms",
        "index_interval_bytes",
        "index_size_bytes",
        "is_full",
        "is_retired",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size_bytes",
        "time_index",
    )

    def __init__(
        self,
        files: Files,
        folder: str,
        base_offset: int,
        *,
        created_ms: int,
        index_interval_bytes: int,
        sizes: dict[str, int] | None = None,
        suffix: str = "",
    ) -> None:
        """`sizes` are the files that are there already; without it the segment is new."""
        self._files = files
        self._stem = f"{folder}/{name_of(base_offset)}"
        self._suffix = suffix
        self._file: File | None = None
        self.is_full = False  # another one is active
        self.is_retired = False  # its files go, and others may have their names by now
        self._is_unlinked = False  # without its file being closed
        self._unindexed_bytes = 0
        self.index_size_bytes = 0  # what the larger index will have with the next entry and the last
        self._first_timestamp: int | None = None
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.index_interval_bytes = min(index_interval_bytes, MOST_INDEX_INTERVAL_BYTES)
        known = sizes or {}
        name = name_of(base_offset)
        self.size_bytes = known.get(name + LOG + suffix, 0)
        self.offset_index = OffsetIndex(
            files, self.path(INDEX), base_offset, file_bytes=known.get(name + INDEX + suffix)
        )
        self.time_index = TimeIndex(
            files, self.path(TIME_INDEX), base_offset, file_bytes=known.get(name + TIME_INDEX + suffix)
        )
        if known.get(name + ABORTED_INDEX + suffix):
            self.aborted = AbortedIndex.load(files, self.path(ABORTED_INDEX))
        else:
            self.aborted = AbortedIndex(files, self.path(ABORTED_INDEX))
        last = self.time_index.last() if len(self.time_index) else None
        self.max_timestamp, self.max_timestamp_offset = last or (NO_TIMESTAMP, base_offset)

    def __repr__(self) -> str:
        return f"<Segment {self.base_offset}, {self.size_bytes} bytes>"

    def path(self, kind: str) -> str:
        return self._stem + kind + self._suffix

    @property
    def is_short(self) -> bool:
        """Too short for an entry in its offset index."""
        return self.size_bytes <= self.index_interval_bytes

    @property
    def has_index_files(self) -> bool:
        return self.offset_index.has_file or self.time_index.has_file

    @property
    def file(self) -> File:
        file = self._file  # another thread may let go of it
        if file is None:
            if self.is_retired:
                raise FileNotFoundError(errno.ENOENT, "it was deleted", self.path(LOG))
            if self._suffix.endswith(DELETED):  # who reads it was given it before; the disk wants its room back
                return self._files.open(self.path(LOG))
            file = self._file = self._files.open(self.path(LOG))
            if self.is_full:
                self._note_open()
        return file

    @property
    def open_file(self) -> File | None:
        """The file, unless that would have to be opened."""
        return self._file

    def seal(self) -> None:
        """It is full: the next one is active from now on."""
        self.is_full = True
        if self._file is not None:
            self._note_open()

    def _note_open(self) -> None:
        """Close the file that was opened first, if too many are open. The next read opens it again."""
        _open[self] = None
        if len(_open) > MOST_OPEN:
            with suppress(KeyError):  # brokers on other threads of a test have the same row
                first, _ = _open.popitem(last=False)
                if first.is_full:  # or it is active again
                    first.close()

    # Writing

    def append(self, data: Buffer) -> int:
        """Write batches at the end; the position of the first."""
        file = self._file or self.file
        position = self.size_bytes
        file.append(data)
        self.size_bytes = position + len(data)
        return position

    def note_batch(self, position: int, size_bytes: int, last_offset: int, max_timestamp: int) -> None:
        """Let the indexes know of a batch that was written at `position`."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._first_timestamp is None and position == 0:
            self._first_timestamp = max_timestamp
        if self._unindexed_bytes > self.index_interval_bytes:
            self._add_entry(last_offset, position, self.max_timestamp, self.max_timestamp_offset)
            self._unindexed_bytes = 0
        self._unindexed_bytes += size_bytes

    def note_batches(self, position: int, batches: Buffer) -> None:
        """The same for batches that were written there, one behind the other."""
        if position == 0:
            self._first_timestamp = read_header(batches).max_timestamp
        unindexed_bytes, self.max_timestamp, self.max_timestamp_offset, entries = index_batches(
            batches,
            position,
            self._unindexed_bytes,
            self.index_interval_bytes,
            self.max_timestamp,
            self.max_timestamp_offset,
        )
        self._unindexed_bytes = unindexed_bytes
        for last_offset, entry_position, max_timestamp, max_timestamp_offset in entries:
            self._add_entry(last_offset, entry_position, max_timestamp, max_timestamp_offset)

    def _add_entry(self, last_offset: int, position: int, max_timestamp: int, max_timestamp_offset: int) -> None:
        self.offset_index.append(last_offset, position)
        if max_timestamp >= 0:
            self.time_index.append(max_timestamp, max_timestamp_offset)
        self.index_size_bytes = max(self.offset_index.size_bytes + 8, self.time_index.size_bytes + 24)

    def write_indexes(self) -> None:
        """Bring the indexes into their files, with the largest timestamp as the last entry."""
        if not self.size_bytes:
            return
        if self.max_timestamp >= 0:
            self.time_index.append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.write()
        self.time_index.write()
        self.aborted.write()

    def sync(self) -> None:
        """Bring all files of a finished segment to the disk. Touches no state: safe on any thread."""
        self.file.sync()
        for path in self.index_paths():
            self._files.sync_path(path)

    def forget_indexes(self) -> None:
        self.offset_index.forget_file()
        self.time_index.forget_file()
        self.aborted.forget()
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        self._unindexed_bytes = 0

    def cut_indexes(self, offset: int, unindexed_bytes: int) -> None:
        """Let the indexes know nothing from `offset` on; so many bytes before it lie behind their last batch."""
        self.offset_index.truncate_to_offset(offset)
        self.time_index.truncate_to_offset(offset)
        self.aborted.truncate_to(offset)
        self.max_timestamp, self.max_timestamp_offset = self.time_index.last() or (NO_TIMESTAMP, self.base_offset)
        self._unindexed_bytes = unindexed_bytes

    def cut(self, position: int, offset: int) -> None:
        """Drop all that lies behind `position`, which is where `offset` would be written next. It is not synced."""
        self.file.truncate(position)
        self.size_bytes = position
        self.offset_index.truncate_to_position(position)
        self.time_index.truncate_to_offset(offset)
        self.aborted.truncate_to(offset)
        if position == 0:
            self._first_timestamp = None
        self._find_max_timestamp()

    def rewritten(self, size_bytes: int) -> None:
        """Another file of that size has the name of this one; its indexes were forgotten before."""
        self.close()
        self.size_bytes = size_bytes
        self._first_timestamp = None

    def _find_max_timestamp(self) -> None:
        last = self.time_index.last()
        self.max_timestamp, self.max_timestamp_offset = last or (NO_TIMESTAMP, self.base_offset)
        start = self.offset_index.position_before(self.max_timestamp_offset)
        with suppress(RottenBatch):  # what is behind that is in the index, or is not found
            for _, header in self.batches(start):
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset

    # Reading

    def locate(self, offset: int, start: int | None = None) -> tuple[int, int, int] | None:
        """Position, size and base offset of the first batch that ends at or behind `offset`.

        `start`: where to begin, in place of what the index says. RottenBatch if there is no batch on the way.
        """
        if not self.size_bytes:
            return None
        position = self.offset_index.position_before(offset) if start is None else start
        file, end = self.file, self.size_bytes
        unpack = _PLACE.unpack_from
        size = 0
        while position + HEADER_SIZE <= end:
            chunk = file.read(position, LOOK_BYTES)
            at, last = 0, min(len(chunk), end - position) - HEADER_SIZE
            if last < 0:
                raise RottenBatch(self.path(LOG), position, "the file ends")
            while at <= last:
                base_offset, length, magic, last_offset_delta = unpack(chunk, at)
                if length < LEAST_LENGTH or magic != MAGIC or last_offset_delta < 0:
                    reason = f"batch length {length}, magic {magic} and last offset delta {last_offset_delta}"
                    raise RottenBatch(self.path(LOG), position + at, reason, position + at - size)
                size = length + PREFIX_SIZE
                if base_offset + last_offset_delta >= offset and position + at + size <= end:
                    return position + at, size, base_offset
                at += size
            position += at
        if position != end:
            raise RottenBatch(self.path(LOG), position - size, f"a batch of {size} bytes, with {end} in the file,")
        return None

    def range_at(
        self, place: tuple[int, int, int], max_bytes: int, end_position: int, *, whole_batch: bool
    ) -> FileRange | None:
        """Bytes from a batch that was located up to `end_position`; None when there are none.

        The range is cut at `max_bytes`, which may be within a batch, but not within the first: with `whole_batch` that
        one is given however large it is, and otherwise nothing.
        """
        position, batch_size, _ = place
        size = min(max_bytes, end_position - position)
        if size < batch_size:
            size = min(batch_size, end_position - position) if whole_batch else 0
        return FileRange(self, position, size) if size > 0 else None

    def position_of(self, offset: int) -> int:
        """Where the batch that holds `offset`, or the first behind it, starts; else the end."""
        found = self.locate(offset)
        return self.size_bytes if found is None else found[0]

    def batches(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of each batch from `position` on, which must be where one starts.

        Who looks at the first few only reads little; who goes on, in larger steps.
        """
        end = self.size_bytes
        if not end:
            return  # without opening the file: thousands of partitions are empty
        file, unpack = self.file, HEADER.unpack_from
        look_bytes, header = LOOK_BYTES, None
        while position + HEADER_SIZE <= end:
            chunk = file.read(position, min(look_bytes, end - position))
            look_bytes = min(look_bytes * 2, SCAN_BYTES)
            at, last = 0, len(chunk) - HEADER_SIZE
            if last < 0:
                return
            while at <= last:
                header = BatchHeader._make(unpack(chunk, at))
                if header.length < LEAST_LENGTH:
                    raise RottenBatch(self.path(LOG), position + at, f"batch length {header.length}")
                yield position + at, header
                at += header.length + PREFIX_SIZE
            position += at
        if position > end and header is not None:
            position -= header.size
            raise RottenBatch(self.path(LOG), position, f"a batch of {header.size} bytes, with {end} in the file,")

    def read_batch(self, position: int, size_bytes: int) -> bytes:
        data = self.file.read(position, size_bytes)
        if len(data) != size_bytes:
            raise CorruptLog(f"{self.path(LOG)}: the batch at byte {position} is cut")
        return data

    def first_timestamp(self) -> int | None:
        """The largest timestamp of the first batch, by which the segment ages; None while it is empty."""
        if self._first_timestamp is None:
            head = self.file.read(0, HEADER_SIZE) if self.size_bytes else b""
            if len(head) == HEADER_SIZE:
                self._first_timestamp = read_header(head).max_timestamp
        return self._first_timestamp

    def largest_timestamp(self) -> int:
        """The largest timestamp of a record, or when the file was last written where records have none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._files.modified_ms(self.path(LOG))

    def next_offset(self) -> int:
        """The offset behind the last batch, found on disk. To be asked before anything is appended.

        RottenBatch if the segment does not end where that batch does.
        """
        start = self.offset_index.raw_entry(len(self.offset_index) - 1)[1] if len(self.offset_index) else 0
        self._unindexed_bytes = self.size_bytes - start
        next_offset, position = self.base_offset, start
        for at, header in self.batches(start):
            next_offset, position = header.next_offset, at + header.size
        if position != self.size_bytes:
            raise RottenBatch(self.path(LOG), position, "a part of a batch")
        return next_offset

    # The files

    def paths(self) -> list[str]:
        return [self.path(LOG), *self.index_paths()]

    def index_paths(self) -> list[str]:
        return [self.path(kind) for kind in INDEXES]

    def change_suffix(self, suffix: str) -> None:
        """Rename all files that are there. The .log file is what counts: it comes last."""
        for kind in (*INDEXES, LOG):
            if self._files.exists(self.path(kind)):
                self._files.rename(self.path(kind), self._stem + kind + suffix)
        self._has_suffix(suffix)

    def mark_deleted(self) -> None:
        """Rename the files, so that opening the log ignores them. If a full disk has no room for that, remove them."""
        suffix, number = DELETED, 0
        while self._files.exists(self._stem + LOG + suffix):  # of an earlier one, which may still be read
            number += 1
            suffix = f".{number}{DELETED}"
        for kind in (LOG, *INDEXES):  # without the first, the others do not count
            path = self.path(kind)
            try:
                if self._files.exists(path):
                    self._files.rename(path, self._stem + kind + suffix)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                if kind == LOG:
                    self.leave_to_readers()
                self._files.remove(path)
        self._has_suffix(suffix)

    def leave_to_readers(self) -> None:
        """The file goes, and stays open for answers that hold some of it: when those are sent its room is free.

        If too many do, they are not sent.
        """
        if len(_left) < MOST_OPEN:
            with suppress(OSError):
                self._file, self._is_unlinked = self.file, True
                _left.add(self)
        self.is_retired = True
        _open.pop(self, None)

    def stand_in(self) -> Segment:
        """Another, which knows the same, and has no files any more."""
        other = copy(self)
        other.is_retired, other._file, other._is_unlinked = True, None, False
        return other

    def remove_files(self, *suffixes: str) -> None:
        """Remove what there is with these suffixes, the .log file first of each."""
        remove_all(self._files, [self._stem + kind + suffix for suffix in suffixes for kind in (LOG, *INDEXES)])

    def _has_suffix(self, suffix: str) -> None:
        self._suffix = suffix
        self.offset_index.moved(self.path(INDEX))
        self.time_index.moved(self.path(TIME_INDEX))
        self.aborted.moved(self.path(ABORTED_INDEX))

    def close(self) -> None:
        """Let go of the file. It is opened again for who reads, also for an answer that is not sent yet."""
        _open.pop(self, None)  # or it would seem that somebody has the segment, when its files go
        if not self._is_unlinked:
            self._file = None
