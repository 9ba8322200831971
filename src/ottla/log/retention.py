"""Which segments have outlived their topic's settings: too old, too many bytes, or before the log's start."""

from __future__ import annotations

from ottla.log.log import Log

AT_ONCE = 20  # to rename the files of a segment takes a third of a millisecond


def expired_segments(log: Log, now_ms: int, most: int = AT_ONCE) -> int:
    """How many of the oldest segments are due, up to some. What is not yet replicated never is."""
    removable = _removable(log, most)
    due = _before_log_start(log, removable)
    if log.config.is_deleted:
        due = max(due, _too_old(log, removable, now_ms), _too_many_bytes(log, removable))
    return due


def apply_retention(log: Log, now_ms: int) -> int:
    """Remove what is due, or some of it; how many segments that was."""
    due = expired_segments(log, now_ms)
    if due:
        log.remove_first(due, now_ms)
    return due


def _removable(log: Log, most: int) -> int:
    """How many of the first segments lie wholly below the high watermark; an empty active one stays."""
    count = 0
    for number, segment in enumerate(log.segments[:most]):
        is_last = number + 1 == len(log.segments)
        next_offset = log.end_offset if is_last else log.segments[number + 1].base_offset
        if next_offset > log.high_watermark or (is_last and segment.size_bytes == 0):
            break
        count += 1
    return count


def _before_log_start(log: Log, removable: int) -> int:
    count = 0
    while count < min(removable, len(log.segments) - 1):
        if log.segments[count + 1].base_offset > log.log_start_offset:
            break
        count += 1
    return count


def _too_old(log: Log, removable: int, now_ms: int) -> int:
    if log.config.retention_ms < 0:
        return 0  # no limit, as with Kafka whatever the number
    count = 0
    while count < removable and now_ms - log.segments[count].largest_timestamp() > log.config.retention_ms:
        count += 1
    return count


def _too_many_bytes(log: Log, removable: int) -> int:
    if log.config.retention_bytes < 0:
        return 0
    excess = log.size_bytes - log.config.retention_bytes
    count = 0
    while count < removable and excess >= log.segments[count].size_bytes:
        excess -= log.segments[count].size_bytes
        count += 1
    return count
