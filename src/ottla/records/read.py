"""Reading records out of batches: as objects, as columns, or batch by batch."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from ottla.records.batch import (
    HEADER_SIZE,
    MAGIC,
    BatchHeader,
    Buffer,
    CorruptBatch,
    computed_crc,
    whole_batches,
)
from ottla.records.codec import LEAST_INT64, Columns, Record, decode_keys, decode_records
from ottla.records.compression import DEFAULT_LIMIT_BYTES, decompress
from ottla.records.portions import record_portions


class Batch(NamedTuple):
    """One whole batch where it lies, its records not yet looked at."""

    header: BatchHeader
    bytes: memoryview

    def area(self, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
        """Its records, uncompressed."""
        return decompress(self.header.codec, self.bytes[HEADER_SIZE:], limit_bytes)

    def records(self, start_offset: int = LEAST_INT64, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> list[Record]:
        header = self.header
        area = self.area(limit_bytes) if header.count else b""
        return decode_records(
            area,
            header.count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if header.is_log_append_time else None,
            start_offset,
        )

    def append_to(
        self,
        columns: Columns,
        start_offset: int = LEAST_INT64,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        """ColumnsFull when they cannot take it; then they are as they were."""
        header = self.header
        area = self.area(limit_bytes) if header.count else b""
        columns.append_batch(
            area,
            header.count,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if header.is_log_append_time else None,
            start_offset,
        )

    def count_between(self, start_offset: int, end_offset: int) -> int:
        """How many of its records are from `start_offset` on and below `end_offset`."""
        steps = self.counting_between(start_offset, end_offset)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                counted: int = end.value
                return counted

    def counting_between(self, start_offset: int, end_offset: int) -> Generator[None, None, int]:
        """The same in steps: it may decompress to very much. It is not read further than it has to be."""
        of_header = count_of_header(self.header, start_offset, end_offset)
        if of_header is not None:
            return of_header
        base_offset, counted = self.header.base_offset, 0
        for portion in record_portions(self.bytes, self.header):
            for offset_delta, _, _ in decode_keys(portion.area, portion.records):
                if base_offset + offset_delta >= end_offset:
                    return counted
                counted += base_offset + offset_delta >= start_offset
            yield
        return counted


def count_of_header(header: BatchHeader, start_offset: int, end_offset: int) -> int | None:
    """The same, from the header alone. None where compaction left holes, and an edge lies within the batch."""
    if start_offset <= header.base_offset and header.last_offset < end_offset:
        return header.count
    if header.count == header.last_offset_delta + 1:
        return max(min(header.next_offset, end_offset) - max(header.base_offset, start_offset), 0)
    return None


def read_batches(
    buffer: Buffer,
    *,
    start_offset: int = LEAST_INT64,
    check_crc: bool = True,
    with_control: bool = False,
) -> Iterator[Batch]:
    """Each whole batch that reaches `start_offset`. A batch cut off at the end of the buffer is left out.

    CorruptBatch at the first batch that is not sound. Without `check_crc` the checksum is for whoever gets the batch:
    one that is passed over nobody gets, so it is checked here.
    """
    view = memoryview(buffer)
    for position, header in whole_batches(view):
        if header.magic != MAGIC:
            raise CorruptBatch(f"magic is {header.magic}, not {MAGIC}")
        is_before = header.last_offset < start_offset
        if check_crc or is_before or header.is_control:
            crc = computed_crc(view, position, header.size)
            if crc != header.crc:
                raise CorruptBatch(f"checksum is {crc:#010x}, the header says {header.crc:#010x}")
        if is_before or (header.is_control and not with_control):
            continue
        yield Batch(header, view[position : position + header.size])


def read_records(
    buffer: Buffer,
    *,
    start_offset: int = LEAST_INT64,
    check_crc: bool = True,
    with_control: bool = False,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> list[Record]:
    """The records from `start_offset` on, of all whole batches."""
    records: list[Record] = []
    for batch in read_batches(buffer, start_offset=start_offset, check_crc=check_crc, with_control=with_control):
        records += batch.records(start_offset, limit_bytes)
    return records


def read_columns(
    buffer: Buffer,
    columns: Columns,
    *,
    start_offset: int = LEAST_INT64,
    check_crc: bool = True,
    with_control: bool = False,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> None:
    """Append the same to `columns`."""
    for batch in read_batches(buffer, start_offset=start_offset, check_crc=check_crc, with_control=with_control):
        batch.append_to(columns, start_offset, limit_bytes)
