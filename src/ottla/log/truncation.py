"""Letting go of the end of a log, as a replica does with what its leader does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.errors import stops_at_errors
from ottla.log.replay import rebuild_producers

if TYPE_CHECKING:
    from ottla.log.log import Log


@stops_at_errors
def truncate_to(log: Log, offset: int, now_ms: int) -> None:
    """Drop all records from `offset` on, with the whole batch that holds it."""
    if offset >= log.end_offset:
        log.epochs.truncate_from_end(log.end_offset)  # one may have begun whose first batch was not written
        return
    if offset < log.segments[0].base_offset:
        truncate_fully(log, offset, now_ms)
        return
    found = log.segments[log.segments.number_for(offset)].locate(offset)
    end_offset = offset if found is None else min(offset, found[2])
    _lower_recovery_point(log, end_offset)
    while log.active.base_offset >= end_offset and len(log.segments) > 1:
        log.segments.remove_last()
    log.active.cut(log.active.position_of(end_offset), end_offset)
    _ended_at(log, end_offset)
    rebuild_producers(log)


@stops_at_errors
def truncate_fully(log: Log, offset: int, now_ms: int) -> None:
    """Drop everything and go on at `offset`."""
    log.make_folder()
    _lower_recovery_point(log, offset)
    while log.segments:
        log.segments.remove_last()
    log.segments.create(offset, now_ms, log.config.index_interval_bytes)
    log.epochs.clear()
    log.snapshots.remove(lambda _taken: True)
    log.log_start_offset = offset
    _ended_at(log, offset)
    log.high_watermark = offset
    log.producers.clear()


def _lower_recovery_point(log: Log, offset: int) -> None:
    """What will be overwritten must be scanned again after a crash, and the disk must know that first.

    Also where the recovery point lies lower: others go by what was there, too.
    """
    log.flusher.truncated()
    log.segments.layout_version += 1
    log.recovery_point = min(log.recovery_point, offset)
    log.owner.before_truncation(offset)


def _ended_at(log: Log, end_offset: int) -> None:
    # One of the end may have been taken when a segment began there, which is no place for recovery to begin at.
    log.snapshots.remove(lambda taken: taken >= max(end_offset, log.active.base_offset + 1))
    log.epochs.truncate_from_end(end_offset)
    log.files.sync_folder(log.folder)
    log.end_offset = end_offset
    log.log_start_offset = min(log.log_start_offset, end_offset)
    log.high_watermark = min(log.high_watermark, end_offset)
    log.recovery_point = min(log.recovery_point, end_offset)
    log.flusher.resume_position = 0
    log.rolling.begin()
