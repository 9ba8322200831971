"""The sparse indexes of a segment: offset to position, and time to offset.

Entries are kept in memory until a few hundred are due, and then go to the file: an index can always be made
again from its segment, so nobody waits for it. A lookup looks at the part in memory first, which is where
readers of the newest data are, and then maps the file. No file stays open.
"""

from __future__ import annotations

import contextlib
import struct
from bisect import bisect_left
from itertools import pairwise

from ottla.log.files import Buffer, Files

SPILL_ENTRIES = 512


class Index:
    """Fixed-size entries in rising order, the older part in a file and the newest in memory."""

    __slots__ = ("_files", "_has_file", "_in_file", "_map", "_tail", "base_offset", "path")

    entry = struct.Struct(">ii")

    def __init__(self, files: Files, path: str, base_offset: int, *, file_bytes: int | None = None) -> None:
        """`file_bytes` is the size of the file, None if there is none."""
        self.path = path
        self.base_offset = base_offset
        self._files = files
        self._has_file = file_bytes is not None
        self._in_file = (file_bytes or 0) // self.entry.size
        self._tail = bytearray()
        self._map: Buffer | None = None

    def __len__(self) -> int:
        return self._in_file + len(self._tail) // self.entry.size

    @property
    def size_bytes(self) -> int:
        return len(self) * self.entry.size

    def raw_entry(self, number: int) -> tuple[int, int]:
        """The two numbers of an entry as they are stored."""
        if number >= self._in_file:
            first, second = self.entry.unpack_from(self._tail, (number - self._in_file) * self.entry.size)
        else:
            first, second = self.entry.unpack_from(self._mapped(), number * self.entry.size)
        return first, second

    def _mapped(self) -> Buffer:
        if self._map is None:
            self._map = self._files.map(self.path)
        return self._map

    def _add(self, first: int, second: int) -> None:
        self._tail += self.entry.pack(first, second)
        if len(self._tail) >= SPILL_ENTRIES * self.entry.size:
            with contextlib.suppress(OSError):  # the entries stay in memory, and the next one tries again
                self.write()

    def write(self) -> None:
        """Bring all entries into the file, which is made even if there are none: Kafka's tools look for it."""
        if self._tail or not self._in_file:
            self._map = None
            self._has_file = True  # or a part of it, should that fail
            self._files.write_at(self.path, self._in_file * self.entry.size, self._tail)
            self._in_file += len(self._tail) // self.entry.size
            self._tail = bytearray()

    def _search(self, first: int) -> int:
        """How many entries have a first number of at most `first`."""
        tail = self._tail
        if tail and self.entry.unpack_from(tail, 0)[0] <= first:
            return self._in_file + self._search_in(tail, len(tail) // self.entry.size, first)
        return self._search_in(self._mapped(), self._in_file, first) if self._in_file else 0

    def _search_in(self, entries: Buffer, count: int, first: int) -> int:
        """Bisection, but from where the entry would be if they lay evenly, which they nearly do.

        So a long index costs no more looks than a short one; an uneven one costs twice a plain bisection at most.
        """
        unpack, size = self.entry.unpack_from, self.entry.size
        low_value: int = unpack(entries, 0)[0]
        if first < low_value:
            return 0
        high_value = unpack(entries, (count - 1) * size)[0]
        if first >= high_value:
            return count
        guess: int = (first - low_value) * (count - 1) // (high_value - low_value)
        step = 2
        if unpack(entries, guess * size)[0] <= first:
            low, high = guess, guess + step
            while high < count and unpack(entries, high * size)[0] <= first:
                low, step = high, step * 2
                high += step
        else:
            low, high = guess - step, guess
            while low > 0 and unpack(entries, low * size)[0] > first:
                high, step = low, step * 2
                low -= step
        while high - low > 1:
            middle = (low + high) // 2
            if middle < 0 or (middle < count and unpack(entries, middle * size)[0] <= first):
                low = middle
            else:
                high = middle
        return high

    def is_rising(self) -> bool:
        """Whether the entries in the file are in order, as those that were lost are not."""
        if not self._in_file:
            return True
        entries = self.entry.iter_unpack(memoryview(self._mapped())[: self._in_file * self.entry.size])
        return all(entry < following for entry, following in pairwise(entries))

    def keep_first(self, count: int) -> None:
        """Forget all entries but the first `count`."""
        if count >= len(self):
            return
        if count >= self._in_file:
            del self._tail[(count - self._in_file) * self.entry.size :]
            return
        self._tail = bytearray()
        self._map = None
        self._in_file = count
        self._files.write_at(self.path, count * self.entry.size, b"")

    def forget_file(self) -> None:
        """Start anew, as when the file cannot be trusted."""
        self._map = None
        self._tail = bytearray()
        self._in_file = 0
        if self._has_file:
            self._files.remove(self.path)
            self._has_file = False

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
        self.keep_first(self._search(offset - 1 - self.base_offset))

    def last_before(self, offset: int) -> tuple[int, int] | None:
        """The last entry of a batch that ends before `offset`: where it ends, and its position."""
        found = self._search(offset - 1 - self.base_offset)
        if not found:
            return None
        relative_offset, position = self.raw_entry(found - 1)
        return self.base_offset + relative_offset, position

    def position_before(self, offset: int) -> int:
        """A position from which reading forward meets the batch that holds `offset`."""
        found = self._search(offset - self.base_offset)
        return self.raw_entry(found - 1)[1] if found else 0

    def offset_from(self, position: int) -> int | None:
        """The last offset of the first batch with an entry that starts at or behind `position`, if there is one."""
        number = self._count_before_position(position)
        return None if number == len(self) else self.base_offset + self.raw_entry(number)[0]

    def truncate_to_position(self, position: int) -> None:
        """Forget the entries of batches that start at or behind `position`."""
        self.keep_first(self._count_before_position(position))

    def _count_before_position(self, position: int) -> int:
        return bisect_left(range(len(self)), position, key=lambda n: self.raw_entry(n)[1])


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
        found = self._search(timestamp - 1)
        return self.base_offset + self.raw_entry(found - 1)[1] if found else self.base_offset

    def truncate_to_offset(self, offset: int) -> None:
        self.keep_first(self._count_before(offset))

    def last_before(self, offset: int) -> tuple[int, int] | None:
        """The last entry of a batch that ends before `offset`: its timestamp, and where it ends."""
        found = self._count_before(offset)
        if not found:
            return None
        timestamp, relative_offset = self.raw_entry(found - 1)
        return timestamp, self.base_offset + relative_offset

    def _count_before(self, offset: int) -> int:
        relative = offset - self.base_offset
        return bisect_left(range(len(self)), relative, key=lambda n: self.raw_entry(n)[1])
