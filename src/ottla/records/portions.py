"""The records of a batch a portion at a time, however much they decompress to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.records.batch import HEADER_SIZE, BatchHeader, Buffer, CorruptBatch
from ottla.records.codec import whole_records
from ottla.records.compression import DEFAULT_LIMIT_BYTES, TooLarge
from ottla.records.pieces import decompress_pieces

MOST_RECORDS = 2000  # of one portion, so that objects can be made of them in a moment


class Portion(NamedTuple):
    """Whole records that follow each other: an area of their own. It may be without any, for a moment's rest."""

    area: Buffer
    first: int  # the place of the first among the records of the batch
    records: int


def record_portions(
    batch: Buffer,
    header: BatchHeader,
    limit_bytes: int | None = None,
    record_limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> Iterator[Portion]:
    """All records of a batch. Memory is held for one portion, or for one record if that is larger.

    CorruptBatch where the records are not as many as the header says, TooLarge where they or one of them are. Without
    `limit_bytes` they may be as large as they like together.
    """
    pieces = decompress_pieces(
        header.codec, memoryview(batch)[HEADER_SIZE : header.size], limit_bytes, record_limit_bytes
    )
    waiting: list[Buffer] = []
    waiting_bytes = needed = first = 0
    for piece in pieces:
        waiting.append(piece)
        waiting_bytes += len(piece)
        if waiting_bytes < needed or not piece:
            yield Portion(b"", first, 0)
            continue
        area = memoryview(waiting[0] if len(waiting) == 1 else b"".join(waiting))
        while True:
            most = min(MOST_RECORDS, header.count - first)
            count, end, needed = whole_records(area, most)
            if count:
                yield Portion(area[:end], first, count)
            first += count
            area = area[end:]
            if count < most or first == header.count:
                break
        if needed > record_limit_bytes:
            raise TooLarge(f"a record decompresses to {needed} bytes, {record_limit_bytes} at most are taken")
        if first == header.count and area:
            raise CorruptBatch(f"{len(area)} bytes follow the last of {header.count} records")
        waiting, waiting_bytes = [area] if area else [], len(area)
    if first != header.count:
        raise CorruptBatch(f"{header.count} records are announced, {first} are there")
