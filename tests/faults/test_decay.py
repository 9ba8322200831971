"""A flipped bit anywhere in a segment is found, and never served as good."""

from pathlib import Path

from ottla.log.files import DiskFiles
from ottla.log.inspect.folder import check_path
from ottla.log.log import Log
from ottla.log.recovery import Recovered, open_log
from ottla.log.scan import SegmentScan
from ottla.log.segment import LOG
from ottla.records.batch import CRC_AT, LEADER_EPOCH_AT
from ottla.testing.files import SimulatedFiles
from tests.log.writing import FOLDER, SMALL, append, append_marker, new_log, served_batches


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


def opened_with_a_flipped_bit(files: SimulatedFiles, log: Log, position: int, recovery_point: int) -> tuple[Log, str]:
    """The log opened again after a crash, and what was found wrong with it."""
    files.flip_bit(log.segments[0].path(LOG), position, position % 8)
    recovered = Recovered()
    opened = new_log(files, recovery_point=recovery_point, recovered=recovered)
    fault, *consequences = recovered.faults
    assert all("the transaction of producer" in consequence for consequence in consequences)
    assert append(opened, [b"goes on"], epoch=3).base_offset == opened.end_offset - 1
    return opened, fault


def test_an_unclean_opening_cuts_the_log_at_what_may_never_have_been_written() -> None:
    files = SimulatedFiles()
    log = new_log(files)
    write_some(log)
    given, starts = [bytes(batch.bytes) for batch in served_batches(log)], batch_starts(log)
    path = log.segments[0].path(LOG)
    whole = files.read_all(path)
    for position in range(len(whole)):
        if not is_in_leader_epoch(position, starts):
            files.replace(path, whole)
            opened, _ = opened_with_a_flipped_bit(files, log, position, 0)
            served = [bytes(batch.bytes) for batch in served_batches(opened)][:-1]  # each is checked
            assert served == given[: len(served)]
            assert len(served) < len(given)


def test_an_unclean_opening_cuts_out_no_more_than_the_batch_that_rotted_on_the_disk() -> None:
    files = SimulatedFiles()
    log = new_log(files)
    write_some(log)
    log.flush(0)
    given, starts = [bytes(batch.bytes) for batch in served_batches(log)], batch_starts(log)
    path = log.segments[0].path(LOG)
    whole = files.read_all(path)
    for position in range(len(whole)):
        if not is_in_leader_epoch(position, starts):
            files.replace(path, whole)
            number = max(number for number, start in enumerate(starts) if start <= position)
            end = [*starts[1:], len(whole)][number]
            opened, fault = opened_with_a_flipped_bit(files, log, position, log.end_offset)
            served = [bytes(batch.bytes) for batch in served_batches(opened) if batch.header.count][:-1]
            assert served == given[:number] + given[number + 1 :], position
            assert fault.endswith(f"{end - starts[number]} bytes from offset {fault_offset(number)} on are rotten "
                                  "and were put aside")  # fmt: skip
            assert files.sizes(FOLDER)[f"{0:020d}.log.{starts[number]}.rotten"] == end - starts[number]


def fault_offset(number: int) -> int:
    """With which offset a batch of `write_some` begins."""
    return [0, 2, 4, 6, 7][number]
