"""Finding records by time. Only the batch that holds the answer is decoded."""

from __future__ import annotations

from typing import NamedTuple

from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader
from ottla.records.codec import Record
from ottla.records.read import Batch


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def offset_for_timestamp(log: Log, timestamp: int) -> FoundOffset | None:
    """The first record in the order of offsets that is as late as `timestamp`, or later."""
    for segment in log.segments.starting_at(log.log_start_offset):
        if segment.max_timestamp < timestamp:
            continue
        start = max(segment.time_index.offset_before(timestamp), log.log_start_offset)
        for position, header in segment.batches(segment.position_of(start)):
            if header.max_timestamp < timestamp:
                continue
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp and record.offset >= log.log_start_offset:
                    return FoundOffset(record.offset, record.timestamp, header.leader_epoch)
    return None


def offset_of_max_timestamp(log: Log) -> FoundOffset | None:
    """The first record that has the largest timestamp of the log."""
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    found = latest.locate(latest.max_timestamp_offset)
    if found is None:
        return None
    for position, header in latest.batches(found[0]):
        for record in _records(latest, position, header):
            if record.timestamp >= latest.max_timestamp:
                return FoundOffset(record.offset, record.timestamp, header.leader_epoch)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    batch = segment.read_batch(position, header.size)
    return Batch(header, memoryview(batch)).records()
