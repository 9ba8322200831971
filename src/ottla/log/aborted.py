"""The aborted transactions of a segment (.txnindex): what a read_committed reader must skip.

An entry is written when an abort marker lands, into the index of the segment that holds the marker. There are
few, so they are all kept in memory.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.log.errors import CorruptLog
from ottla.log.files import Files

ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # right after this abort


def pack_entry(entry: AbortedTransaction) -> bytes:
    return ENTRY.pack(0, *entry)


def unpack_entries(data: bytes) -> list[AbortedTransaction]:
    entries = []
    for position in range(0, len(data) - len(data) % ENTRY.size, ENTRY.size):
        version, *numbers = ENTRY.unpack_from(data, position)
        entry = AbortedTransaction(*numbers)
        if version != 0 or not 0 <= entry.first_offset <= entry.last_offset:
            raise CorruptLog(f"aborted transaction at byte {position}: version {version}, {entry}")
        entries.append(entry)
    return entries


class AbortedIndex:
    __slots__ = ("_files", "entries", "path")

    def __init__(self, files: Files, path: str, entries: list[AbortedTransaction] | None = None) -> None:
        self._files = files
        self.path = path
        self.entries = entries or []

    @classmethod
    def load(cls, files: Files, path: str) -> AbortedIndex:
        return cls(files, path, unpack_entries(files.read_all(path)))

    def append(self, entry: AbortedTransaction) -> None:
        self._files.write_at(self.path, len(self.entries) * ENTRY.size, pack_entry(entry))
        self.entries.append(entry)

    def truncate_to(self, offset: int) -> None:
        """Forget the aborts whose marker is at or behind `offset`."""
        kept = [entry for entry in self.entries if entry.last_offset < offset]
        if len(kept) < len(self.entries):
            self.entries = kept
            self._files.write_at(self.path, len(kept) * ENTRY.size, b"")

    def forget_file(self) -> None:
        self.entries = []
        self._files.remove(self.path)

    def moved(self, path: str) -> None:
        self.path = path
