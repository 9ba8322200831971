"""The batches of a segment file, the sound ones and the others, for those who only look."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.inspect.files import LogFile, ReadOnlyFiles
from ottla.log.scan import NOWHERE, Fault, SegmentScan
from ottla.log.segment import Segment
from ottla.records.batch import DELETE_HORIZON, HEADER_SIZE, LEAST_LENGTH, MAGIC, BatchHeader, CorruptBatch, read_header
from ottla.records.build import read_marker
from ottla.records.codec import LEAST_INT64, Record, Scan, decode_keys, decode_records, scan_records
from ottla.records.portions import Portion, record_portions

_CONTROL_KEY = struct.Struct(">hh")  # version, type
# The first two end transactions; the others are of the log in which Kafka keeps the state of its cluster.
CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)


class PlacedBatch(NamedTuple):
    """A sound batch and where it starts. `batch` is a view that the next step of the reading reuses."""

    position: int
    header: BatchHeader
    batch: memoryview

    def records(self) -> Iterator[Record]:
        """CorruptBatch where the next cannot be read. A portion of them is held at a time."""
        header = self.header
        if not header.count:
            return
        append_time = header.max_timestamp if header.is_log_append_time else None
        for area, _, count in record_portions(self.batch, header):
            yield from decode_records(area, count, header.base_offset, header.base_timestamp, append_time)


class SegmentReader:
    """Iterate over a segment file: a PlacedBatch for each sound batch, a Fault for what is none.

    Behind a batch that does not hold the reading goes on if its length can be believed; `unread_bytes` says how
    much was left when it could not.
    """

    def __init__(self, file: LogFile) -> None:
        size_bytes = file.path.stat().st_size
        name = file.path.name
        segment = Segment(
            ReadOnlyFiles(),
            str(file.path.parent),
            file.offset,
            created_ms=0,
            index_interval_bytes=0,
            sizes={name: size_bytes},
            suffix=file.suffix,
        )
        self.size_bytes = size_bytes
        self.unread_bytes = 0
        self._scan = SegmentScan(segment)

    def continue_from(self, leader_epoch: int) -> None:
        """Have the epochs of the batches follow that of the segment before."""
        self._scan.leader_epoch = leader_epoch

    @property
    def position(self) -> int:
        return self._scan.position

    def __iter__(self) -> Iterator[PlacedBatch | Fault]:
        while True:
            for position, header, batch in self._scan:
                yield PlacedBatch(position, header, batch)
            fault = self._scan.fault
            if fault is None:
                return
            yield fault
            if not self._step_over(fault.position):
                self.unread_bytes = self.size_bytes - fault.position
                return

    def _step_over(self, position: int) -> bool:
        """Go on behind the bad batch at `position`, and take what follows as it comes."""
        scan = self._scan
        bad = self._plausible_header(position)
        if bad is None:
            return False
        following = self._plausible_header(position + bad.size)
        if following is not None:
            scan.next_offset, scan.leader_epoch = following.base_offset, following.leader_epoch
        elif position + bad.size != self.size_bytes:
            return False
        scan.position = position + bad.size
        scan.fault = None
        return True

    def _plausible_header(self, position: int) -> BatchHeader | None:
        data = self._scan.segment.file.read(position, HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            return None
        header = read_header(data)
        fits = header.length >= LEAST_LENGTH and position + header.size <= self.size_bytes
        return header if fits and header.magic == MAGIC else None


def is_mark_of_compaction(header: BatchHeader) -> bool:
    """Whether only compaction leaves such a batch. The checksum covers these fields."""
    return header.count <= header.last_offset_delta or bool(header.attributes & DELETE_HORIZON)


def control_types(batch: PlacedBatch) -> list[str]:
    """What the records of a control batch say, by their keys."""
    names = []
    for record in batch.records():
        if record.key is None or len(record.key) < _CONTROL_KEY.size:
            raise CorruptBatch("the key of a control record is a version and a type")
        _, number = _CONTROL_KEY.unpack_from(record.key)
        names.append(CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else f"type {number}")
    return names


def wrong_records(batch: PlacedBatch) -> str | None:
    """What is wrong with the records of a batch whose checksum holds. A portion of them is held at a time."""
    header = batch.header
    latest, last_delta = LEAST_INT64, -1
    try:
        if not header.count:
            scan_records(batch.batch[HEADER_SIZE:], 0)
            return None
        for portion in record_portions(batch.batch, header):
            if not portion.records:
                continue
            scan = scan_records(portion.area, portion.records, portion.first)
            latest = max(latest, header.base_timestamp + scan.most_timestamp_delta)
            last_delta = _last_of_rising(portion, scan, last_delta)
            if last_delta > header.last_offset_delta:
                return f"the offsets of its records do not rise from {header.base_offset} to {header.last_offset}"
        if header.is_control:
            _check_control(batch)
    except CorruptBatch as error:
        return str(error)
    if latest > header.max_timestamp and not header.is_log_append_time:
        return f"a record has timestamp {latest}, the header says at most {header.max_timestamp}"
    return None


def _last_of_rising(portion: Portion, scan: Scan, before: int) -> int:
    """The offset delta of its last record; NOWHERE where they do not rise, from behind `before` on."""
    if scan.is_in_order and before < portion.first:
        return portion.first + portion.records - 1
    for offset_delta, _, _ in decode_keys(portion.area, portion.records):
        if offset_delta <= before:
            return NOWHERE
        before = offset_delta
    return before


def _check_control(batch: PlacedBatch) -> None:
    if batch.header.producer_id >= 0:
        read_marker(batch.batch)
    else:
        control_types(batch)
