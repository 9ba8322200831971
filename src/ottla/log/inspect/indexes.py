"""Whether the indexes of a segment fit its batches. Each check is shown the batches in their order."""

from __future__ import annotations

import struct

from ottla.log.aborted import ENTRY as ABORTED_ENTRY
from ottla.log.aborted import AbortedTransaction, unpack_entries
from ottla.log.errors import CorruptLog
from ottla.log.index import OffsetIndex, TimeIndex
from ottla.log.inspect.report import FileReport
from ottla.records.batch import BatchHeader


def read_entries(data: bytes, entry: struct.Struct) -> list[tuple[int, int]]:
    """The entries of an index file. Kafka makes the file in its full size at first, and zeros are no entries."""
    used = len(data.rstrip(b"\0"))
    whole = min(-(-used // entry.size), len(data) // entry.size) * entry.size
    return [(first, second) for first, second in entry.iter_unpack(memoryview(data)[:whole])]


class _EntriesCheck:
    """Entries that rise, each to be found fitting when the reading comes to its place."""

    def __init__(self, report: FileReport, entry: struct.Struct) -> None:
        self.report = report
        self.entry_size = entry.size
        data = report.file.path.read_bytes()
        self.entries = read_entries(data, entry)
        self.number = 0  # of the next entry to be found
        report.facts["entries"] = len(self.entries)
        if len(data) % entry.size:
            report.add(f"{len(data)} bytes are no whole number of entries of {entry.size} bytes each")
        self._keep_rising()

    def _keep_rising(self) -> None:
        before = (-1, -1)
        for number, entry in enumerate(self.entries):
            if not self.follows(before, entry):
                self.add(number, f"{entry} follows {before}")
                del self.entries[number:]  # there is no telling which of the rest is meant
                return
            before = entry

    def follows(self, before: tuple[int, int], entry: tuple[int, int]) -> bool:
        return entry[0] > before[0] and entry[1] > before[1]

    def leave(self) -> None:
        """The segment could not be read any further."""
        if self.number < len(self.entries):
            self.report.facts["unchecked"] = len(self.entries) - self.number

    def add(self, number: int, reason: str) -> None:
        self.report.add(f"entry {number}: {reason}", number * self.entry_size)


class OffsetIndexCheck(_EntriesCheck):
    """An entry holds the last offset of the batch that starts at its position."""

    def __init__(self, report: FileReport) -> None:
        super().__init__(report, OffsetIndex.entry)
        self.base_offset = report.file.offset

    def see(self, position: int, header: BatchHeader) -> None:
        while self.number < len(self.entries):
            relative_offset, place = self.entries[self.number]
            if place > position:
                return
            offset = self.base_offset + relative_offset
            if place < position:
                self.add(self.number, f"no batch starts at byte {place} of the segment")
            elif offset != header.last_offset:
                self.add(
                    self.number, f"offset {offset} at byte {place}, where the batch ends with {header.last_offset}"
                )
            self.number += 1

    def finish(self, size_bytes: int) -> None:
        for number in range(self.number, len(self.entries)):
            self.add(number, f"byte {self.entries[number][1]} is not in the segment of {size_bytes} bytes")


class TimeIndexCheck(_EntriesCheck):
    """An entry holds the largest timestamp up to a place, and an offset of the batch that has it."""

    def __init__(self, report: FileReport) -> None:
        super().__init__(report, TimeIndex.entry)
        self.base_offset = report.file.offset
        self.largest = -1

    def follows(self, before: tuple[int, int], entry: tuple[int, int]) -> bool:
        return entry[0] > before[0] and entry[1] >= max(before[1], 0)

    def see(self, header: BatchHeader) -> None:
        if header.max_timestamp > self.largest:
            self.largest = header.max_timestamp
        while self.number < len(self.entries):
            timestamp, relative_offset = self.entries[self.number]
            offset = self.base_offset + relative_offset
            if offset > header.last_offset:
                return
            if offset < header.base_offset:
                self.add(self.number, f"no batch holds offset {offset}")
            elif not timestamp == header.max_timestamp == self.largest:
                reason = f"timestamp {timestamp} at offset {offset}, where the batch has {header.max_timestamp}"
                self.add(self.number, f"{reason} and the largest so far is {self.largest}")
            self.number += 1

    def finish(self) -> None:
        for number in range(self.number, len(self.entries)):
            self.add(number, f"offset {self.base_offset + self.entries[number][1]} is not in the segment")


class AbortedIndexCheck:
    """An entry for each transaction that an ABORT in the segment ends."""

    def __init__(self, report: FileReport | None) -> None:
        self.report = report  # None: there is no such file
        self.entries: list[AbortedTransaction] = []
        self.expected: dict[int, AbortedTransaction | None] = {}
        if report is not None:
            self._read(report)

    def _read(self, report: FileReport) -> None:
        data = report.file.path.read_bytes()
        if len(data) % ABORTED_ENTRY.size:
            report.add(f"{len(data)} bytes are no whole number of entries of {ABORTED_ENTRY.size} bytes each")
        try:
            self.entries = unpack_entries(data)
        except CorruptLog as error:
            report.add(str(error))
        report.facts["entries"] = len(self.entries)

    def expect(self, marker_offset: int, entry: AbortedTransaction | None) -> None:
        """An ABORT was read, and this is what it ended; None where the beginning was not seen."""
        self.expected[marker_offset] = entry

    def finish(self, segment: FileReport, *, may_lack_newest: bool, is_compacted: bool) -> None:
        """`may_lack_newest`: a log in use has its newest entries in memory. Compaction takes markers away."""
        before = -1
        for number, entry in enumerate(self.entries):
            reason = self._reason_against(entry, before, is_compacted=is_compacted)
            if reason and self.report:
                self.report.add(f"entry {number}: {reason}", number * ABORTED_ENTRY.size)
            before = max(before, entry.last_offset)
        noted = {entry.last_offset for entry in self.entries}
        missing = [entry for offset, entry in self.expected.items() if entry is not None and offset not in noted]
        if missing and not is_compacted and not (may_lack_newest and missing[0].last_offset > before):
            (self.report or segment).add(f"the aborted transaction {tuple(missing[0])} is not in the index")

    def _reason_against(self, entry: AbortedTransaction, before: int, *, is_compacted: bool) -> str | None:
        if entry.last_offset <= before:
            return f"offset {entry.last_offset} follows {before}"
        if is_compacted:
            return None
        if entry.last_offset not in self.expected:
            return f"there is no ABORT at offset {entry.last_offset}"
        expected = self.expected[entry.last_offset]
        if expected is None or expected == entry:
            return None
        return f"{tuple(entry)}, where the segment says {tuple(expected)}"
