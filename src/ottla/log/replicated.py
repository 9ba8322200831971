"""What a follower got from its leader: batches that must go on where its log ends."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.errors import CorruptLog, StaleLeaderEpoch, UnexpectedOffset
from ottla.log.segment import LARGEST_RELATIVE_OFFSET
from ottla.records.batch import CONTROL, PREFIX, PREFIX_SIZE, BatchHeader, CorruptBatch, check_batch
from ottla.records.build import ControlMarker, read_marker

if TYPE_CHECKING:
    from ottla.log.log import Log

LARGEST_EPOCH = 2**31 - 1
ROLLED_AT_ONCE = 10  # segments that are filled in one step: each takes some tenths of a millisecond
CHECKED_AT_ONCE = 1000  # batches: each takes some microseconds, however small it is


class ReplicatedBatch(NamedTuple):
    position: int
    header: BatchHeader
    marker: ControlMarker | None


def append_replicated(log: Log, records: memoryview, now_ms: int, most_epoch: int = LARGEST_EPOCH) -> int:
    """Write batches as the leader gave them, which must continue this log; how many bytes were taken.

    Of very many batches, or of those that fill very many segments, the first are taken: with the others it is to be
    called again (`has_batch`). `most_epoch`: the leader's own. When it raises, some may have been written, all whole.
    """
    if log.failure is not None:
        raise log.refusal
    log.settle_cut()
    begins_log = log.is_empty and log.end_offset == log.log_start_offset
    batches = checked_batches(records, log.end_offset, log.epochs.latest, most_epoch, begins_log=begins_log)
    if batches and batches[0].header.base_offset < log.end_offset:
        _begin_within(log, batches[0].header.base_offset, now_ms)
    taken, most_segments = 0, len(log.segments) + ROLLED_AT_ONCE
    for run in runs_of(batches):
        if len(log.segments) >= most_segments:
            break  # before an epoch begins that has no records yet
        first, last = run[0], run[-1]
        if first.header.leader_epoch > log.epochs.latest:
            log.assign_epoch(first.header.leader_epoch, max(first.header.base_offset, log.log_start_offset))
        end = last.position + last.header.size
        taken += _write_run(log, records[first.position : end], run, now_ms, most_segments)
        if taken < end:
            break
    return taken


def _begin_within(log: Log, base_offset: int, now_ms: int) -> None:
    """The leader's log starts within a batch: what is before it was deleted. This log gets the whole batch."""
    start_offset = log.log_start_offset
    log.truncate_fully(base_offset, now_ms)
    log.log_start_offset = log.high_watermark = start_offset


def _leave_gap(log: Log, base_offset: int, now_ms: int) -> None:
    """Compaction has left nothing for billions of offsets, which no index of one segment can tell."""
    log.make_folder()
    log.roll(now_ms, base_offset)
    log.end_offset = base_offset


def _write_run(log: Log, data: memoryview, run: list[ReplicatedBatch], now_ms: int, most_segments: int) -> int:
    """Batches of one epoch, with one write if they fit into the segment; how many bytes were written."""
    newest = max(batch.header.max_timestamp for batch in run)
    last_offset = run[-1].header.last_offset
    is_too_much = len(run) > 1 and len(data) > log.config.segment_bytes  # also for an empty one
    if is_too_much or log.rolling.is_due(log.segments.active, len(data), last_offset, newest, now_ms):
        if len(run) > 1:
            middle = len(run) // 2
            size_bytes = run[middle].position - run[0].position
            written = _write_run(log, data[:size_bytes], run[:middle], now_ms, most_segments)
            if written == size_bytes:
                written += _write_run(log, data[size_bytes:], run[middle:], now_ms, most_segments)
            return written
        if len(log.segments) >= most_segments:
            return 0
        if log.active.size_bytes == 0 or last_offset - log.end_offset > LARGEST_RELATIVE_OFFSET:
            _leave_gap(log, run[0].header.base_offset, now_ms)
    at = log.write_bytes(data, last_offset, newest, now_ms)
    for _, header, marker in run:
        log.segments.active.note_batch(at, header.size, header.last_offset, header.max_timestamp)
        at += header.size
        log.end_offset = header.last_offset + 1
        if header.producer_id >= 0:
            log.note_producer(header, header.base_offset, marker)
    return len(data)


def checked_batches(
    records: memoryview,
    next_offset: int,
    leader_epoch: int,
    most_epoch: int = LARGEST_EPOCH,
    *,
    begins_log: bool = False,
) -> list[ReplicatedBatch]:
    """The whole batches in `records`, or the first of very many; raises if one is not as it must be.

    Epochs never fall, and none is above that of the leader who gave them. A cut batch at the end is left out, as a
    fetch may end within one. `begins_log`: the first batch may hold `next_offset`, for a log may start within one.
    """
    checked: list[ReplicatedBatch] = []
    position = 0
    while position < len(records) and len(checked) < CHECKED_AT_ONCE:
        try:
            header = check_batch(records, position)
        except CorruptBatch as error:
            if position and len(records) - position < _announced_bytes(records, position):
                break
            raise CorruptLog(f"records at offset {next_offset}: {error}") from None
        is_start = begins_log and not checked and header.last_offset >= next_offset
        if header.base_offset < next_offset and not is_start:
            raise UnexpectedOffset(f"offset {header.base_offset} came, {next_offset} was due")
        if header.leader_epoch < leader_epoch:
            raise StaleLeaderEpoch(f"offset {header.base_offset} is of epoch {header.leader_epoch}, not {leader_epoch}")
        if header.leader_epoch > most_epoch:
            raise StaleLeaderEpoch(f"offset {header.base_offset} is of epoch {header.leader_epoch} behind {most_epoch}")
        marker = None
        if header.attributes & CONTROL and header.producer_id >= 0 and header.count:  # compaction may have emptied it
            marker = read_marker(records[position : position + header.size])
        checked.append(ReplicatedBatch(position, header, marker))
        leader_epoch = header.leader_epoch
        position += header.size
        next_offset = header.next_offset
    return checked


def runs_of(batches: list[ReplicatedBatch]) -> Iterator[list[ReplicatedBatch]]:
    """Batches of one epoch that come one behind the other."""
    for _, run in itertools.groupby(batches, key=lambda batch: batch.header.leader_epoch):
        yield list(run)


def has_batch(records: memoryview) -> bool:
    """Whether there is a whole batch, and not only the first part of one."""
    return len(records) > 0 and len(records) >= _announced_bytes(records, 0)


def _announced_bytes(records: memoryview, position: int) -> int:
    """How many bytes the batch at `position` says it has."""
    if len(records) - position < PREFIX_SIZE:
        return PREFIX_SIZE
    length: int = PREFIX.unpack_from(records, position)[1]
    return length + PREFIX_SIZE
