"""The aborted transactions of a segment (.txnindex): what a read_committed reader must skip.

An entry is made when an abort marker lands, in the index of the segment that holds the marker. There are few, so
they are all kept in memory, and go to the file with the other indexes of the segment.
"""

from __future__ import annotations

import struct
from bisect import bisect_right, insort
from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from ottla.log.errors import CorruptLog
from ottla.log.files import Files
from ottla.records.batch import BatchHeader

ENTRY = struct.Struct(">hqqqq")
_first_offset = attrgetter("first_offset")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # right after this abort


def pack_entry(entry: AbortedTransaction) -> bytes:
    return ENTRY.pack(0, *entry)


def unpack_entries(data: bytes) -> list[AbortedTransaction]:
    entries: list[AbortedTransaction] = []
    for position in range(0, len(data) - len(data) % ENTRY.size, ENTRY.size):
        version, *numbers = ENTRY.unpack_from(data, position)
        entry = AbortedTransaction(*numbers)
        if version != 0 or not 0 <= entry.first_offset < entry.last_offset:
            raise CorruptLog(f"aborted transaction at byte {position}: version {version}, {entry}")
        if entries and entries[-1].last_offset >= entry.last_offset:
            raise CorruptLog(f"aborted transaction at byte {position}: {entry} follows {entries[-1]}")
        entries.append(entry)
    return entries


class AbortedRanges:
    """Aborted transactions by where they lie, so that a batch can be looked at without those before it.

    From its first batch to its marker, all that a producer writes in a transaction belongs to that one.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction] = ()) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        self.add(aborted)

    def add(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Of a producer, each begins behind the end of the one before, and that is the order they come in."""
        by_producer = self._by_producer
        for transaction in aborted:
            known = by_producer.get(transaction.producer_id)
            if known is None:
                by_producer[transaction.producer_id] = [transaction]
            elif known[-1].first_offset <= transaction.first_offset:
                known.append(transaction)
            else:
                insort(known, transaction, key=_first_offset)

    def find(self, header: BatchHeader) -> AbortedTransaction | None:
        """The aborted transaction that a batch is of, or that a marker ends."""
        transactions = self._by_producer.get(header.producer_id)
        if transactions is None or not header.is_transactional:
            return None
        number = bisect_right(transactions, header.base_offset, key=_first_offset)
        if number and header.base_offset <= transactions[number - 1].last_offset:
            return transactions[number - 1]
        return None


class AbortedIndex:
    __slots__ = ("_files", "_in_file", "_is_stale", "entries", "is_sound", "path")

    def __init__(self, files: Files, path: str, entries: list[AbortedTransaction] | None = None) -> None:
        self._files = files
        self.path = path
        self.entries = entries or []
        self.is_sound = True
        self._is_stale = False  # the file has what was known before the entries were forgotten
        self._in_file = len(self.entries)

    @classmethod
    def load(cls, files: Files, path: str) -> AbortedIndex:
        """What the file says, if it is there. One that is torn or cannot be is not sound, and has no entries."""
        try:
            data = files.read_all(path)
            if len(data) % ENTRY.size == 0:
                return cls(files, path, unpack_entries(data))
        except FileNotFoundError:
            return cls(files, path)
        except CorruptLog:
            pass
        index = cls(files, path)
        index.is_sound = False
        return index

    def append(self, entry: AbortedTransaction) -> None:
        self.entries.append(entry)

    def write(self) -> None:
        """Bring all entries into the file (which a segment without aborts does not have)."""
        self.replace_stale()
        if self._in_file != len(self.entries):
            new = b"".join(map(pack_entry, self.entries[self._in_file :]))
            self._files.write_at(self.path, self._in_file * ENTRY.size, new)
            self._in_file = len(self.entries)

    def truncate_to(self, offset: int) -> None:
        """Forget the aborts whose marker is at or behind `offset`."""
        self.entries = [entry for entry in self.entries if entry.last_offset < offset]
        if self._in_file > len(self.entries):
            self._in_file = len(self.entries)
            self._files.write_at(self.path, self._in_file * ENTRY.size, b"")

    def forget(self) -> None:
        """Start anew. The file stays until all is found again: without it the aborts of a short segment are unknown."""
        self._is_stale = self._is_stale or self._in_file > 0 or not self.is_sound
        self.entries = []
        self.is_sound = True
        self._in_file = 0

    def replace_stale(self) -> None:
        """Have the file say what was found since `forget`."""
        if not self._is_stale:
            return
        contents = b"".join(map(pack_entry, self.entries))
        if not contents:
            self._files.remove(self.path)
        elif contents != self._files.read_all(self.path):
            self._files.replace(self.path, contents)
        self._in_file = len(self.entries)
        self._is_stale = False

    def moved(self, path: str) -> None:
        self.path = path
