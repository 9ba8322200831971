"""Letting go of the end of a log, as a replica does with what its leader does not have.

It takes three steps, of which the first and the last wait for the disk. Before the cut the disk must know that what
lies behind it counts no more (`prepare_cut`). Then the log is cut (`cut_to`, `cut_fully`), which waits for nobody. And
nothing is written behind it before the cut itself is on the disk (`Cut.sync`): whoever writes sooner waits for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ottla.log.behind_rot import end_before, locate_behind
from ottla.log.errors import RottenBatch, stops_at_errors
from ottla.log.files import File, Files
from ottla.log.hole import remove_mark
from ottla.log.replay import rebuild_producers

if TYPE_CHECKING:
    from ottla.log.log import Log


class Cut(NamedTuple):
    """A cut that was made."""

    files: Files
    folder: str
    file: File
    takes_hole: bool  # records that had rotted lay behind it

    def sync(self) -> None:
        """Bring it to the disk. Touches no state: safe on any thread."""
        self.file.sync()
        if self.takes_hole:
            remove_mark(self.files, self.folder)
        self.files.sync_folder(self.folder)


def prepare_cut(log: Log, offset: int) -> Callable[[], None]:
    """The job, for any thread, after which a cut at `offset` need not wait for the disk. Nothing is cut yet."""
    end_offset, _ = _place_of_cut(log, offset)
    _lower_recovery_point(log, end_offset)
    return log.owner.preparing_truncation(end_offset)


@stops_at_errors
def cut_to(log: Log, offset: int, now_ms: int) -> None:
    """Drop all records from `offset` on, with the whole batch that holds it. `Log.cut` is not on the disk yet."""
    if offset >= log.end_offset:
        log.epochs.truncate_from_end(log.end_offset)  # one may have begun whose first batch was not written
        return
    if offset < log.segments[0].base_offset:
        cut_fully(log, offset, now_ms)
        return
    settle_cut(log)
    end_offset, position = _place_of_cut(log, offset)
    segment = log.segments[log.segments.number_for(offset)]
    _before_cut(log, end_offset)
    while log.active.base_offset >= end_offset and len(log.segments) > 1:
        log.segments.remove_last(now_ms)
    log.active.cut(position if log.active is segment else log.active.size_bytes, end_offset)
    _ended_at(log, end_offset)
    rebuild_producers(log, goes_around_rot=True)


@stops_at_errors
def cut_fully(log: Log, offset: int, now_ms: int) -> None:
    """Drop everything and go on at `offset`. `Log.cut` is not on the disk yet."""
    settle_cut(log)
    log.make_folder()
    _before_cut(log, offset)
    while log.segments:
        log.segments.remove_last(now_ms)
    log.segments.create(offset, now_ms, log.config.index_interval_bytes)
    log.epochs.clear()
    log.snapshots.remove(lambda _taken: True)
    log.log_start_offset = offset
    _ended_at(log, offset)
    log.high_watermark = offset
    log.producers.clear()


@stops_at_errors
def settle_cut(log: Log) -> None:
    """Have the last cut on the disk."""
    cut = log.cut
    if cut is not None:
        cut.sync()
        log.cut = None


def truncate_to(log: Log, offset: int, now_ms: int) -> None:
    """As `cut_to`, here and now."""
    cut_to(log, offset, now_ms)
    settle_cut(log)


def truncate_fully(log: Log, offset: int, now_ms: int) -> None:
    """As `cut_fully`, here and now."""
    cut_fully(log, offset, now_ms)
    settle_cut(log)


def _place_of_cut(log: Log, offset: int) -> tuple[int, int]:
    """Where the log will end: before the batch that holds the offset; its offset, and its position in the segment.

    If that batch has rotted, before all that is rotten around it: the leader gives it again.
    """
    segment = log.segments[log.segments.number_for(offset)]
    if offset >= log.end_offset:
        return offset, segment.size_bytes
    try:
        found = segment.locate(offset)
    except RottenBatch as rotten:
        found = locate_behind(segment, rotten, offset)
        if found is None or found[2] > offset:
            return end_before(segment, rotten, offset)
    return (offset, segment.size_bytes) if found is None else (min(offset, found[2]), found[0])


def _lower_recovery_point(log: Log, offset: int) -> None:
    log.flusher.truncated()
    log.recovery_point = min(log.recovery_point, offset)


def _before_cut(log: Log, offset: int) -> None:
    """What will be overwritten must be scanned again after a crash, and the disk must know that first.

    Also where the recovery point lies lower: others go by what was there, too.
    """
    _lower_recovery_point(log, offset)
    log.segments.layout_version += 1
    log.owner.before_truncation(offset)


def _ended_at(log: Log, end_offset: int) -> None:
    # One of the end may have been taken when a segment began there, which is no place for recovery to begin at.
    log.snapshots.remove(lambda taken: taken >= max(end_offset, log.active.base_offset + 1))
    log.epochs.truncate_from_end(end_offset)
    log.end_offset = end_offset
    log.log_start_offset = min(log.log_start_offset, end_offset)
    log.high_watermark = min(log.high_watermark, end_offset)
    log.recovery_point = min(log.recovery_point, end_offset)
    log.flusher.resume_position = 0
    log.rolling.begin()
    takes_hole = log.hole is not None and (end_offset <= log.hole.first_offset or log.is_empty)
    if takes_hole:
        log.hole = None
    log.cut = Cut(log.files, log.folder, log.active.file, takes_hole)
