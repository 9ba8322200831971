"""Bytes that were on the disk and have changed there.

After a crash the end of a log may be torn, and everything from there on is removed. Rot is different: what lies behind
it was on the disk, too, and is sound. So only the bad bytes are cut out of their segment. They are kept in a file
beside it (.rotten) for whoever wants to look at them. Their offsets are missing from then on, as in a compacted log.
At the end of the log a batch without records takes those offsets: if new records got them, consumers that have read so
far would never see these.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from typing import NamedTuple

from ottla.log.aborted import AbortedTransaction
from ottla.log.files import Buffer, File, Files
from ottla.log.scan import Fault, SegmentScan
from ottla.log.segment import CLEANED, LOG, SCAN_BYTES, Segment
from ottla.records.batch import (
    ATTRIBUTES_AT,
    HEADER,
    HEADER_SIZE,
    LEAST_LENGTH,
    MAGIC,
    MAGIC_AT,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
)
from ottla.records.build import ControlMarker, build_batch, build_marker
from ottla.records.checksum import crc32c
from ottla.records.retain import empty_batch

ROTTEN = ".rotten"
MOST_ENDS_TRIED = 20  # of a batch whose length may be bad
MOST_TRIED_BYTES = 16 << 20


class Place(NamedTuple):
    """How far the reading of a log has come."""

    position: int  # in its segment
    next_offset: int
    leader_epoch: int


class Rot(NamedTuple):
    position: int
    end_position: int
    first_offset: int  # the first that is missing
    reason: str
    in_place: Buffer = b""  # what comes there instead


class _Jump(NamedTuple):
    """A batch has another offset than was due, or another leader epoch than the one before it."""

    before: Place
    without: Place  # behind it, if not for the jump


def _jump_of(header: BatchHeader, before: Place) -> _Jump | None:
    next_offset, leader_epoch = header.next_offset, header.leader_epoch
    if header.base_offset > before.next_offset:
        next_offset = before.next_offset
    if header.leader_epoch > before.leader_epoch:
        leader_epoch = before.leader_epoch
    without = Place(before.position + header.size, next_offset, leader_epoch)
    return None if without[1:] == (header.next_offset, header.leader_epoch) else _Jump(before, without)


class RotSearch:
    """Reads a segment whose bytes were on the disk up to an offset, and tells which of them are bad.

    The checksum of a batch does not cover its offset and its leader epoch. Where two batches that are sound otherwise
    contradict each other, the one is bad that does not follow from what came before it.
    """

    def __init__(self, segment: Segment, place: Place, on_disk_up_to: int, end_offset: int, most_epoch: int) -> None:
        """`end_offset`: where the next segment begins. `most_epoch`: what that one begins with."""
        self.found: list[Rot] = []
        self.place = place  # behind the last sound batch
        self.sound_again_at = 0  # the offset behind the last that is missing
        self._segment = segment
        self._on_disk_up_to = on_disk_up_to
        self._end_offset = end_offset
        self._most_epoch = most_epoch
        self._jump: _Jump | None = None  # that of the last sound batch, if it makes one

    def run(self) -> None:
        while self.place.position < self._segment.size_bytes and self.place.next_offset < self._on_disk_up_to:
            scan = self._scan_from(self.place)
            for position, header, _ in scan:
                if not self._is_within(header) or self._leaps(position, header):
                    self._blame(position, position + header.size, "its offset or leader epoch cannot be")
                    break
                self._jump = _jump_of(header, self.place) if self.place.next_offset < self._on_disk_up_to else None
                if header.base_offset > self.place.next_offset:
                    self.sound_again_at = header.base_offset
                self.place = Place(position + header.size, header.next_offset, header.leader_epoch)
            else:
                if scan.fault is None or not self._pass(scan.fault):
                    return

    def is_unfinished(self) -> bool:
        """Whether there is no more at the place than the beginning of a batch, as where a crash ended a write.

        A length that has rotted looks like that; but then all of the batch is there, or another one behind it.
        """
        position, left_bytes = self.place.position, self._segment.size_bytes - self.place.position
        if left_bytes > MOST_TRIED_BYTES or self._next_sound(position + 1) < self._segment.size_bytes:
            return False
        found = self._segment.file.read(position, left_bytes)
        return len(found) < HEADER_SIZE or crc32c(found[ATTRIBUTES_AT:]) != read_header(found).crc

    def _scan_from(self, place: Place) -> SegmentScan:
        return SegmentScan(
            self._segment, position=place.position, next_offset=place.next_offset, leader_epoch=place.leader_epoch
        )

    def _is_within(self, header: BatchHeader) -> bool:
        """Whether it lies on one side of what was on the disk, and before the next segment."""
        if header.base_offset < self._on_disk_up_to < header.next_offset:
            return False
        return header.last_offset < self._end_offset and header.leader_epoch <= self._most_epoch

    def _leaps(self, position: int, header: BatchHeader) -> bool:
        """Whether it leaves out offsets that were on the disk, and neither rot nor a batch behind it explains that."""
        if not self.place.next_offset < self._on_disk_up_to <= header.base_offset:
            return False
        follows_rot = bool(self.found) and self.found[-1].end_position == position
        behind = Place(position + header.size, header.next_offset, header.leader_epoch)
        return not (follows_rot or self._is_sound_at(behind))

    def _pass(self, fault: Fault) -> bool:
        """Find out what of a fault is bad, to go on behind it; False if it may never have been on the disk."""
        jump, self._jump = self._jump, None
        if jump is not None and self._is_sound_at(jump.without._replace(position=fault.position)):
            self.place = jump.before
            self._blame(
                jump.before.position, fault.position, "the batches behind it contradict its offset or leader epoch"
            )
            return True
        if self.place.next_offset >= self._on_disk_up_to:
            return False
        self._blame(fault.position, self._end_of_bad(fault.position), fault.reason)
        return True

    def _end_of_bad(self, position: int) -> int:
        """Where the bad batch at `position` ends.

        As a rule its length holds, and what looks like a batch within it is in one of its records. Where the length
        is bad, the checksum fits what lies before one of the next batches; the first may be in a record, too. Where
        more is bad, the next batch is all there is.
        """
        following, size_bytes = self._next_sound(position + 1), self._segment.size_bytes
        head = self._segment.file.read(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return following
        header, end = read_header(head), following
        for _ in range(MOST_ENDS_TRIED):
            checked_bytes = max(end - position - ATTRIBUTES_AT, 0)
            if crc32c(self._segment.file.read(position + ATTRIBUTES_AT, checked_bytes)) == header.crc:
                return end
            if end - position > MOST_TRIED_BYTES or end == size_bytes:
                break
            end = self._next_sound(end + 1)
        stated = position + header.size
        if not position + HEADER_SIZE <= stated <= size_bytes or stated <= following:
            return following
        is_end = stated == size_bytes or self._is_sound_at(self.place._replace(position=stated))
        return stated if is_end else following

    def _blame(self, position: int, end_position: int, reason: str) -> None:
        self.found.append(Rot(position, end_position, self.place.next_offset, reason))
        self.place = self.place._replace(position=end_position)

    def _is_sound_at(self, place: Place) -> bool:
        for _, header, _ in self._scan_from(place):
            return self._is_within(header)
        return False

    def _next_sound(self, position: int) -> int:
        """Where the next sound batch starts, else the end. The length may be what is bad, so each byte is looked at."""
        size_bytes = self._segment.size_bytes
        while position + HEADER_SIZE <= size_bytes:
            chunk = self._segment.file.read(position, SCAN_BYTES + HEADER_SIZE)
            for at in _candidates(chunk):
                header = read_header(chunk, at)
                may_follow = (
                    self.place.next_offset <= header.base_offset <= header.last_offset
                    and self._is_within(header)
                    and LEAST_LENGTH <= header.length <= size_bytes - position - at
                )
                if may_follow and self._is_sound_at(self.place._replace(position=position + at)):
                    return position + at
            position += SCAN_BYTES
        return size_bytes


def _candidates(chunk: bytes) -> Iterator[int]:
    """Where a batch may start, by the one byte that all of them have in common."""
    last = min(SCAN_BYTES - 1, len(chunk) - HEADER_SIZE)
    at = chunk.find(MAGIC, MAGIC_AT)
    while 0 <= at <= last + MAGIC_AT:
        yield at - MAGIC_AT
        at = chunk.find(MAGIC, at + 1)


def with_ends(
    segment: Segment,
    place: Place,
    found: list[Rot],
    end_offset: int,
    aborted: list[AbortedTransaction],
    producer_epochs: dict[int, int],
) -> list[Rot]:
    """What was found, with a marker in the place of each that is known to have ended an aborted transaction.

    Without it those who read what is committed would be shown the records of that transaction; or, told of it, pass
    over the next one of its producer, too. `place`: where the search began. `producer_epochs`: as of there.
    """
    waiting: int | None = None  # the first of those that no sound batch follows yet
    found, position = list(found), place.position

    def settle(following: int) -> None:
        if waiting is None:
            return
        markers = bytearray()
        for entry in sorted(aborted, key=lambda entry: entry.last_offset):
            if place.next_offset <= entry.last_offset < following:
                markers += build_marker(
                    ControlMarker(is_commit=False, coordinator_epoch=0),
                    producer_id=entry.producer_id,
                    producer_epoch=producer_epochs.get(entry.producer_id, 0),
                    timestamp=NO_TIMESTAMP,
                    base_offset=entry.last_offset,
                    leader_epoch=max(place.leader_epoch, 0),
                )
        found[waiting] = found[waiting]._replace(in_place=markers)

    for number, end in enumerate([*(rot.position for rot in found), segment.size_bytes]):
        for at, header, _ in SegmentScan(
            segment, position=position, next_offset=place.next_offset, leader_epoch=place.leader_epoch
        ):
            if at >= end:
                break
            settle(header.base_offset)
            waiting = None
            place = Place(at + header.size, header.next_offset, header.leader_epoch)
            producer_epochs[header.producer_id] = header.producer_epoch
        if number < len(found):
            waiting = number if waiting is None else waiting
            position = found[number].end_position
    settle(end_offset)
    return found


def cut_out(files: Files, folder: str, segment: Segment, found: list[Rot]) -> None:
    """Write the segment anew without what is bad. Its indexes go: they point to where things were."""
    path = segment.path(LOG)
    cleaned = path + CLEANED
    files.remove(cleaned)
    target = files.open(cleaned)
    position = 0
    for rot in found:
        _copy(segment.file, position, rot.position, target)
        _put_aside(files, segment, rot)
        target.append(rot.in_place)
        position = rot.end_position
    _copy(segment.file, position, segment.size_bytes, target)
    target.sync()
    segment.forget_indexes()
    files.sync_folder(folder)
    files.rename(cleaned, path)
    files.sync_folder(folder)
    segment.rewritten(target.size_bytes)


def _put_aside(files: Files, segment: Segment, rot: Rot) -> None:
    """Keep what is bad in a file of its own; what an earlier rot has left at that position stays, too."""
    stem, number = f"{segment.path(LOG)}.{rot.position}", 0
    while files.exists(kept := f"{stem}{f'.{number}' if number else ''}{ROTTEN}"):
        if _is_copy(files.open(kept), segment.file, rot):
            return  # by a recovery that was cut short
        number += 1
    aside = files.open(kept)
    _copy(segment.file, rot.position, rot.end_position, aside)
    aside.sync()


def _is_copy(aside: File, source: File, rot: Rot) -> bool:
    if aside.size_bytes != rot.end_position - rot.position:
        return False
    return all(
        aside.read(position - rot.position, SCAN_BYTES)
        == source.read(position, min(SCAN_BYTES, rot.end_position - position))
        for position in range(rot.position, rot.end_position, SCAN_BYTES)
    )


def without_records(first_offset: int, end_offset: int, leader_epoch: int) -> Buffer:
    """A batch that has offsets and nothing else."""
    batch = build_batch([b""], timestamp=NO_TIMESTAMP)
    header = read_header(batch)._replace(
        base_offset=first_offset, last_offset_delta=end_offset - first_offset - 1, leader_epoch=leader_epoch
    )
    HEADER.pack_into(batch, 0, *header)
    return empty_batch(batch)


def _copy(source: File, position: int, end_position: int, target: File) -> None:
    while position < end_position:
        chunk = source.read(position, min(SCAN_BYTES, end_position - position))
        if not chunk:
            raise OSError(errno.EIO, "a file is shorter than it was")
        target.append(chunk)
        position += len(chunk)
