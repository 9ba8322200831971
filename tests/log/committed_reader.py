"""Reads a log as a consumer with isolation.level=read_committed does, from what a broker would send it."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.log.log import Log
from ottla.records.batch import whole_batches
from ottla.records.build import read_marker
from ottla.records.codec import Record
from ottla.records.read import Batch


def committed_records(log: Log, offset: int, max_bytes: int = 1 << 20) -> Iterator[Record]:
    """The records that are shown from `offset` on.

    What is aborted is told with each answer, as producer ids with first offsets, and holds until an abort marker of
    that producer comes by.
    """
    stable = log.last_stable_offset
    while (found := log.read(offset, max_bytes, bound := log.segments.bound_by_aborts(offset, stable))) is not None:
        coming = sorted((entry.first_offset, entry.producer_id) for entry in log.aborted_within(found, offset, bound))
        aborting: set[int] = set()
        for batch in _batches(found.read()):
            header = batch.header
            if header.last_offset < offset:
                continue
            while coming and coming[0][0] <= header.last_offset:
                aborting.add(coming.pop(0)[1])
            if header.is_control:
                if header.count and not read_marker(batch.bytes).is_commit:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                yield from (record for record in batch.records() if record.offset >= offset)
            offset = header.next_offset


def _batches(data: bytes) -> Iterator[Batch]:
    view = memoryview(data)
    for position, header in whole_batches(data):
        yield Batch(header, view[position : position + header.size])
