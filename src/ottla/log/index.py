"""The sparse indexes of a segment: offset to position, and time to offset.

Entries are kept in memory until a few hundred are due, and then go to the file: an index can always be made
again from its segment, so nobody waits for it. A lookup looks at the part in memory first, which is where
readers of the newest data are, and then reads a part of the file.

No file stays open, nor is one mapped: a map keeps a descriptor in Python, and a log may have very many segments. The
first and the last entry of a file are remembered, so to append never reads.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from itertools import pairwise

from ottla.log.files import Buffer, Files

SPILL_ENTRIES = 512
READ_ENTRIES = 256


class Index:
    """Fixed-size entries in rising order, the older part in a file and the newest in memory."""

    __slots__ = ("_edges", "_files", "_in_file", "_tail", "base_offset", "has_file", "path")

    entry = struct.Struct(">ii")

    def __init__(self, files: Files, path: str, base_offset: int, *, file_bytes: int | None = None) -> None:
        """`file_bytes` is the size of the file, None if there is none."""
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self.has_file = file_bytes is not None
        self._in_file = (file_bytes or 0) // self.entry.size
        self._tail = bytearray()
        self._edges: tuple[tuple[int, int], tuple[int, int]] | None = None  # the first and the last in the file

    def __len__(self) -> int:
        return self._in_file + len(self._tail) // self.entry.size

    @property
    def size_bytes(self) -> int:
        return len(self) * self.entry.size

    def raw_entry(self, number: int) -> tuple[int, int]:
        """The two numbers of an entry as they are stored."""
        if number >= self._in_file:
            return self._unpack(self._tail, number - self._in_file)
        if number in (0, self._in_file - 1):
            return self._file_edges()[number > 0]
        return self._unpack(self._read(number, 1), 0)

    def _unpack(self, entries: Buffer, number: int) -> tuple[int, int]:
        first, second = self.entry.unpack_from(entries, number * self.entry.size)
        return first, second

    def _read(self, start: int, count: int) -> bytes:
        """Entries of the file."""
        size_bytes = count * self.entry.size
        data = self._files.read_at(self.path, start * self.entry.size, size_bytes)
        if len(data) != size_bytes:
            raise OSError(errno.EIO, "the index is shorter than it was", self.path)
        return data

    def _file_edges(self) -> tuple[tuple[int, int], tuple[int, int]]:
        if self._edges is None:
            last = self._in_file - 1
            if last < READ_ENTRIES:
                entries = self._read(0, self._in_file)
                self._edges = self._unpack(entries, 0), self._unpack(entries, last)
            else:
                self._edges = self._unpack(self._read(0, 1), 0), self._unpack(self._read(last, 1), 0)
        return self._edges

    def _add(self, first: int, second: int) -> None:
        self._tail += self.entry.pack(first, second)
        if len(self._tail) >= SPILL_ENTRIES * self.entry.size:
            with contextlib.suppress(OSError):  # the entries stay in memory, and the next one tries again
                self.write()

    def write(self) -> None:
        """Bring all entries into the file, which is made even if there are none: Kafka's tools look for it."""
        if self._tail or not self._in_file:
            tail = self._tail
            count = len(tail) // self.entry.size
            edges = None
            if count:
                first = self._file_edges()[0] if self._in_file else self._unpack(tail, 0)
                edges = first, self._unpack(tail, count - 1)
            self.has_file = True  # or a part of it, should that fail
            self._files.write_at(self.path, self._in_file * self.entry.size, tail)
            self._in_file += count
            self._tail, self._edges = bytearray(), edges

    def _count_up_to(self, value: int, column: int = 0) -> int:
        """How many entries have a number of at most `value` in a column."""
        return self._find(value, column)[0]

    def _last_up_to(self, value: int, column: int = 0) -> tuple[int, int] | None:
        """The last of these entries."""
        count, entry = self._find(value, column)
        return entry if entry is not None or not count else self.raw_entry(count - 1)

    def _find(self, value: int, column: int) -> tuple[int, tuple[int, int] | None]:
        """How many there are, and the last of them where it was read."""
        tail = self._tail
        if tail and self._unpack(tail, 0)[column] <= value:
            return self._in_file + self._bisect(tail, value, column), None
        return self._find_in_file(value, column) if self._in_file else (0, None)

    def _bisect(self, entries: Buffer, value: int, column: int) -> int:
        unpack, size = self.entry.unpack_from, self.entry.size
        low, high = 0, len(entries) // size
        while low < high:
            middle = (low + high) // 2
            if unpack(entries, middle * size)[column] <= value:
                low = middle + 1
            else:
                high = middle
        return low

    def _find_in_file(self, value: int, column: int) -> tuple[int, tuple[int, int] | None]:
        """Bisection by parts of the file, but from where the entry would be if they lay evenly, which they nearly do.

        So as a rule one part is read, however long the index is.
        """
        first, last = self._file_edges()
        if value < first[column]:
            return 0, None
        if value >= last[column]:
            return self._in_file, last
        least, most, before = 1, self._in_file - 1, first
        middle = (value - first[column]) * most // (last[column] - first[column])
        while least < most:
            start = max(least, min(middle, most) - READ_ENTRIES // 2)
            entries = self._read(start, min(READ_ENTRIES, most - start))
            count = len(entries) // self.entry.size
            found = self._bisect(entries, value, column)
            if found:
                before = self._unpack(entries, found - 1)
                least = start + found
            if found < count:
                most = start + found
            middle = (least + most) // 2
        return least, before

    def is_rising(self) -> bool:
        """Whether the entries in the file are in order, as those that were lost are not."""
        if not self._in_file:
            return True
        entries = self.entry.iter_unpack(self._read(0, self._in_file))
        return all(entry < following for entry, following in pairwise(entries))

    def keep_first(self, count: int) -> None:
        """Forget all entries but the first `count`."""
        if count >= len(self):
            return
        if count >= self._in_file:
            del self._tail[(count - self._in_file) * self.entry.size :]
            return
        self._tail = bytearray()
        self._edges = None
        self._in_file = count
        self._files.write_at(self.path, count * self.entry.size, b"")
        if count:
            self._file_edges()

    def forget_file(self) -> None:
        """Start anew, as when the file cannot be trusted."""
        self._edges = None
        self._tail = bytearray()
        self._in_file = 0
        if self.has_file:
            self._files.remove(self.path)
            self.has_file = False

    def moved(self, path: str) -> None:
        self.path = path


class OffsetIndex(Index):
    """Entries are the last offset of a batch, relative to the segment, and where that batch starts."""

    __slots__ = ()

    entry = struct.Struct(">ii")

    def append(self, last_offset: int, position: int) -> None:
        self._add(last_offset - self.base_offset, position)

    def truncate_to_offset(self, offset: int) -> None:
        """Forget the entries of batches that end at or behind `offset`."""
        self.keep_first(self._count_up_to(offset - 1 - self.base_offset))

    def last_before(self, offset: int) -> tuple[int, int] | None:
        """The last entry of a batch that ends before `offset`: where it ends, and its position."""
        found = self._last_up_to(offset - 1 - self.base_offset)
        return None if found is None else (self.base_offset + found[0], found[1])

    def position_before(self, offset: int) -> int:
        """A position from which reading forward meets the batch that holds `offset`."""
        found = self._last_up_to(offset - self.base_offset)
        return 0 if found is None else found[1]

    def offset_from(self, position: int) -> int | None:
        """The last offset of the first batch with an entry that starts at or behind `position`, if there is one."""
        number = self._count_up_to(position - 1, 1)
        return None if number == len(self) else self.base_offset + self.raw_entry(number)[0]

    def position_behind(self, position: int) -> int | None:
        """Where the first batch with an entry starts that is behind `position`, if there is one."""
        number = self._count_up_to(position, 1)
        return None if number == len(self) else self.raw_entry(number)[1]

    def truncate_to_position(self, position: int) -> None:
        """Forget the entries of batches that start at or behind `position`."""
        self.keep_first(self._count_up_to(position - 1, 1))


class TimeIndex(Index):
    """Entries are the largest timestamp up to a place, and the last offset of the batch that has it."""

    __slots__ = ()

    entry = struct.Struct(">qi")

    def append(self, timestamp: int, offset: int) -> None:
        """Note a new largest timestamp; one that is not larger than the last is left out."""
        count = len(self)
        if count == 0 or timestamp > self.raw_entry(count - 1)[0]:
            self._add(timestamp, offset - self.base_offset)

    def last(self) -> tuple[int, int] | None:
        """The largest timestamp noted and its offset."""
        if not len(self):
            return None
        timestamp, relative_offset = self.raw_entry(len(self) - 1)
        return timestamp, self.base_offset + relative_offset

    def offset_before(self, timestamp: int) -> int:
        """An offset before which no record is as late as `timestamp`."""
        found = self._last_up_to(timestamp - 1)
        return self.base_offset if found is None else self.base_offset + found[1]

    def truncate_to_offset(self, offset: int) -> None:
        self.keep_first(self._count_up_to(offset - 1 - self.base_offset, 1))

    def last_before(self, offset: int) -> tuple[int, int] | None:
        """The last entry of a batch that ends before `offset`: its timestamp, and where it ends."""
        found = self._last_up_to(offset - 1 - self.base_offset, 1)
        return None if found is None else (found[0], self.base_offset + found[1])
