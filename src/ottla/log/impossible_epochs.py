"""Batches of leader epochs that there have not been yet.

The checksum of a batch does not cover its leader epoch. If a bit of it flips at the end of the log, no later batch
contradicts it, and the file of epochs has no checksum at all. A log that believed in such an epoch would refuse its
leader for ever. So the batch is kept, and gets the epoch of the batch before it.
"""

from __future__ import annotations

import struct

from ottla.log.log import Log
from ottla.log.segment import LOG, Segment
from ottla.records.batch import LEADER_EPOCH_AT

_EPOCH = struct.Struct(">i")


def mend_epochs(log: Log, most_epoch: int) -> int:
    """Take back the epochs behind that of the leader; the offset from which on there were such.

    OSError or CorruptLog leave the log as it was known: what was done in its files is done again at the next start.
    """
    start = next(start for epoch, start in log.epochs.entries if epoch > most_epoch)
    entries = [entry for entry in log.epochs.entries if entry[1] < start]
    for segment in log.segments.starting_at(start):
        _restamp(log, segment, start, most_epoch, entries)
    log.epochs.forget_from(start)
    for epoch, epoch_start in entries[len(log.epochs.entries) :]:
        log.epochs.add(epoch, epoch_start)
    log.epochs.write(durable=True)
    return start


def _restamp(log: Log, segment: Segment, start: int, most_epoch: int, entries: list[tuple[int, int]]) -> None:
    """Correct the batches of one segment from an offset on, and note the epochs that they begin."""
    wrong: dict[int, int] = {}  # the epoch that a batch should have, by its position
    for position, header in segment.batches(segment.position_of(start)):
        latest = entries[-1][0] if entries else -1
        epoch = header.leader_epoch
        if not latest <= epoch <= most_epoch:
            epoch = wrong[position] = max(latest, 0)
        if epoch > latest:
            entries.append((epoch, header.base_offset))
    if wrong:
        first = min(wrong)
        tail = bytearray(segment.file.read(first, segment.size_bytes - first))
        for position, epoch in wrong.items():
            _EPOCH.pack_into(tail, position - first + LEADER_EPOCH_AT, epoch)
        log.files.write_at(segment.path(LOG), first, tail)  # the same bytes: cut short at any of them, it is no worse
        segment.file.sync()
