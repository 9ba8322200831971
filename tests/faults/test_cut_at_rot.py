"""A log is cut where a batch has rotted while it is in use: a follower makes the cut all the same, and goes on."""

from __future__ import annotations

import pytest

from ottla.log.log import Log
from ottla.log.segment import LOG
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import LENGTH_AT, whole_batches
from ottla.testing.files import SimulatedFiles
from tests.log.writing import append, new_log

BATCHES = 12
ROTTEN = 5
INTERVALS = {"no index": 1 << 16, "an index of some": 200, "an index of all": 1}
ROTS = {"too short": (LENGTH_AT, b"\0\0\0\1"), "too long": (LENGTH_AT, b"\x7f\0\0\0"), "nothing": (0, bytes(70))}


def filled(files: SimulatedFiles, interval_bytes: int, base: int) -> Log:
    """A log of batches of one record each, all of one producer."""
    log = new_log(files, TopicConfig(internal_segment_bytes=1 << 20, index_interval_bytes=interval_bytes))
    if base:
        log.truncate_fully(base, 0)
    for number in range(BATCHES):
        append(log, [b"value %d" % number], producer_id=7, producer_epoch=0, base_sequence=number)
    return log


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for _, header in whole_batches(data)]


@pytest.mark.parametrize("base", [0, 100])
@pytest.mark.parametrize("rot", ROTS.values(), ids=ROTS)
@pytest.mark.parametrize("interval_bytes", INTERVALS.values(), ids=INTERVALS)
@pytest.mark.parametrize("cut", range(1, BATCHES))
def test_a_cut_at_any_offset(cut: int, interval_bytes: int, rot: tuple[int, bytes], base: int) -> None:
    files = SimulatedFiles()
    log = filled(files, interval_bytes, base)
    path = log.active.path(LOG)
    starts = [position for position, _ in whole_batches(files.read_all(path))]
    at, garbage = rot
    files.open(path).write_over(starts[ROTTEN] + at, garbage)
    log.prepare_cut(base + cut)()
    log.truncate_to(base + cut, 0)
    # The batch before the rot may go, too: its length could be what is bad.
    assert log.end_offset in ({base + cut, base + cut - 1} if cut == ROTTEN else {base + cut})
    assert len(files.read_all(path)) == starts[log.end_offset - base]
    sound = min(ROTTEN, log.end_offset - base)
    assert offsets(files.read_all(path)[: starts[sound]]) == [*range(base, base + sound)]
    last = log.end_offset - base - 1
    assert log.producers.by_id[7].last_sequence in ({last, last - 1} if last == ROTTEN else {last})
    assert append(log).base_offset == log.end_offset - 1
