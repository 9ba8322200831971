"""A flipped bit anywhere in a segment is found, and never served as good."""

from pathlib import Path

import pytest

from ottla.log.files import DiskFiles
from ottla.log.inspect_folder import check_path
from ottla.log.log import Log
from ottla.log.recovery import Recovered, open_log
from ottla.log.scan import SegmentScan
from ottla.log.segment import LOG
from ottla.records.batch import CRC_AT, LEADER_EPOCH_AT
from ottla.testing.files import SimulatedFiles
from tests.log.writing import SMALL, append, append_marker, new_log, served_batches


def write_some(log: Log) -> None:
    for number in range(3):
        append(log, [b"value", b"%d" % number], epoch=number // 2, timestamp=1000 + number)
    append(log, producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True, epoch=2)
    append_marker(log, 5, is_commit=False, epoch=2)


def batch_starts(log: Log) -> list[int]:
    return [position for position, _ in log.segments[0].batches()]


def is_in_leader_epoch(position: int, starts: list[int]) -> bool:
    """The broker stamps a batch with its epoch behind the checksum's back."""
    start = max(start for start in starts if start <= position)
    return LEADER_EPOCH_AT <= position - start < LEADER_EPOCH_AT + 4


def test_a_scan_finds_every_flipped_bit() -> None:
    files = SimulatedFiles()
    log = new_log(files)
    write_some(log)
    segment, starts = log.segments[0], batch_starts(log)
    given = [bytes(batch.bytes) for batch in served_batches(log)]
    for position in range(segment.size_bytes):
        for bit in range(8):
            files.flip_bit(segment.path(LOG), position, bit)
            scan = SegmentScan(segment, dense_from=0)
            sound = [bytes(batch) for _, _, batch in scan]
            if not is_in_leader_epoch(position, starts):
                assert scan.fault is not None, (position, bit)
                assert sound == given[: len(sound)]
                assert scan.fault.position in starts
                assert scan.fault.position <= position
            files.flip_bit(segment.path(LOG), position, bit)


def test_verify_finds_every_flipped_byte_and_every_bit_that_no_checksum_covers(tmp_path: Path) -> None:
    folder = tmp_path / "topic-0"
    log = open_log(DiskFiles(), str(folder), SMALL, now_ms=0)
    write_some(log)
    starts = batch_starts(log)
    log.close(0)
    path = folder / "00000000000000000000.log"
    assert all(report.is_ok for report in check_path(folder))
    whole = path.read_bytes()
    for position in range(len(whole)):
        start = max(start for start in starts if start <= position)
        bits = range(8) if position - start < CRC_AT else [position % 8]
        for bit in bits:
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            path.write_bytes(flipped)
            assert not all(report.is_ok for report in check_path(folder)), (position, bit)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_an_unclean_opening_serves_only_sound_batches(is_flushed: bool) -> None:
    files = SimulatedFiles()
    log = new_log(files)
    write_some(log)
    log.flush(0)
    given = [bytes(batch.bytes) for batch in served_batches(log)]
    path, starts, end_offset = log.segments[0].path(LOG), batch_starts(log), log.end_offset
    whole = files.read_all(path)
    for position in range(len(whole)):
        if is_in_leader_epoch(position, starts):
            continue
        files.replace(path, whole)
        files.flip_bit(path, position, position % 8)
        recovered = Recovered()
        log = new_log(files, recovery_point=end_offset if is_flushed else 0, recovered=recovered)
        served = [bytes(batch.bytes) for batch in served_batches(log)]  # each is checked
        assert served == given[: len(served)]
        assert len(served) < len(given)
        assert len(recovered.faults) == 1
        assert append(log, [b"goes on"], epoch=3).base_offset == log.end_offset - 1
