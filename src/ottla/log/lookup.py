"""Finding records by time, in steps: only the batch that holds the answer is decoded, and that a portion at a time.

The log may change between two steps. Where segments have come or gone, the search begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import NamedTuple, TypeAlias

from ottla.log.errors import StorageFailed
from ottla.log.log import Log
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader
from ottla.records.codec import Record, decode_records
from ottla.records.portions import record_portions

STEP_BATCHES = 100  # whose headers are looked at


class FoundOffset(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


Search: TypeAlias = Generator[None, None, FoundOffset | None]


class _Moved(Exception):
    """The segments are not those any more that the search began with."""


def offset_for_timestamp(log: Log, timestamp: int) -> Search:
    """The first record in the order of offsets that is as late as `timestamp`, or later."""
    return _again_if_moved(lambda: _search(log, timestamp))


def offset_of_max_timestamp(log: Log) -> Search:
    """The first record that has the largest timestamp of the log."""
    return _again_if_moved(lambda: _search_latest(log))


def _again_if_moved(search: Callable[[], Search]) -> Search:
    while True:
        try:
            return (yield from search())
        except _Moved:
            continue
        except OSError as error:
            raise StorageFailed(str(error)) from error


def _search(log: Log, timestamp: int) -> Search:
    for segment in log.segments.starting_at(log.log_start_offset):
        if segment.max_timestamp < timestamp:
            continue
        start = max(segment.time_index.offset_before(timestamp), log.log_start_offset)
        found = yield from _search_segment(log, segment, segment.position_of(start), timestamp, log.log_start_offset)
        if found is not None:
            return found
    return None


def _search_latest(log: Log) -> Search:
    latest = max(log.segments, key=lambda segment: segment.max_timestamp)
    place = latest.locate(latest.max_timestamp_offset)
    if place is None:
        return None
    return (yield from _search_segment(log, latest, place[0], latest.max_timestamp, 0))


def _search_segment(log: Log, segment: Segment, position: int, timestamp: int, start_offset: int) -> Search:
    """The first record from a position on that is late enough, and not before an offset."""
    layout_version = log.segments.layout_version
    for number, (place, header) in enumerate(segment.batches(position), 1):
        if header.max_timestamp >= timestamp:
            for records in _portions(segment, place, header):
                for record in records:
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return FoundOffset(record.offset, record.timestamp, header.leader_epoch)
                yield
                if log.segments.layout_version != layout_version:
                    raise _Moved
        if number % STEP_BATCHES == 0:
            yield
            if log.segments.layout_version != layout_version:
                raise _Moved
    return None


def _portions(segment: Segment, position: int, header: BatchHeader) -> Iterator[list[Record]]:
    append_time = header.max_timestamp if header.is_log_append_time else None
    if not header.count:
        return
    for area, _, count in record_portions(segment.read_batch(position, header.size), header):
        if count:
            yield decode_records(area, count, header.base_offset, header.base_timestamp, append_time)
        else:
            yield []
