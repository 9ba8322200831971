"""A scan reads all that is sound and says where and why it ends; one case for each thing that can be wrong."""

from typing import Any

import pytest

from ottla.log import scan as scanning
from ottla.log.scan import SegmentScan
from ottla.log.segment import LOG, Segment
from ottla.records.batch import stamp_crc
from ottla.records.build import build_batch
from ottla.records.codec import stamp_batches
from ottla.testing.files import SimulatedFiles

BASE = 50


def sound(base_offset: int, *, epoch: int = 3, count: int = 2, value: bytes = b"value") -> bytearray:
    batch = build_batch([value] * count, timestamp=1000)
    stamp_batches(batch, base_offset, epoch)
    return batch


def changed(base_offset: int, position: int, data: bytes, *, is_stamped: bool = True) -> bytearray:
    """A batch with other bytes at a place, the checksum made to fit unless told otherwise."""
    batch = sound(base_offset)
    batch[position : position + len(data)] = data
    if is_stamped:
        stamp_crc(batch, 0, len(batch))
    return batch


def scan_of(*parts: bytes | bytearray, **options: Any) -> SegmentScan:
    segment = Segment(SimulatedFiles(), "", BASE, created_ms=0, index_interval_bytes=100)
    segment.append(b"".join(parts))
    return SegmentScan(segment, **options)


FIRST = sound(BASE)


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (b"\0", "not a whole batch"),
        (bytes(60), "not a whole batch"),
        (bytes(61), "batch length 0"),
        (sound(BASE + 2)[:-1], "bytes, 84 are left"),
        (sound(BASE + 2)[:61], "bytes, 61 are left"),
        (changed(BASE + 2, 8, (48).to_bytes(4)), "batch length 48"),
        (changed(BASE + 2, 8, (-1).to_bytes(4, signed=True)), "batch length -1"),
        (changed(BASE + 2, 8, (2**31 - 1).to_bytes(4)), "are left"),
        (changed(BASE + 2, 16, b"\1"), "magic is 1"),
        (changed(BASE + 2, 65, b"x", is_stamped=False), "checksum"),
        (sound(BASE + 1), f"base offset {BASE + 1} comes where {BASE + 2}"),
        (sound(BASE - 1), f"base offset {BASE - 1} comes where"),
        (sound(BASE + 3), f"offsets {BASE + 2} to {BASE + 2} are missing"),
        (changed(BASE + 2, 23, (-1).to_bytes(4, signed=True)), "is negative"),
        (changed(BASE + 2, 57, (-1).to_bytes(4, signed=True)), "is negative"),
        (sound(BASE + 2, epoch=2), "leader epoch 2 follows 3"),
    ],
)
def test_a_fault_ends_the_scan(second: bytes, reason: str) -> None:
    following = sound(BASE + 4) if len(second) == len(FIRST) else b""
    scan = scan_of(FIRST, second, following, dense_from=0)
    found = [(position, header.base_offset, bytes(batch)) for position, header, batch in scan]
    assert found == [(0, BASE, bytes(FIRST))]
    assert scan.fault is not None
    assert scan.fault.position == scan.position == len(FIRST)
    assert reason in scan.fault.reason
    assert (scan.next_offset, scan.leader_epoch) == (BASE + 2, 3)


def test_offsets_too_far_from_the_base_are_a_fault() -> None:
    scan = scan_of(sound(BASE), sound(BASE + 2**31))
    assert len(list(scan)) == 1
    assert scan.fault is not None
    assert "too far" in scan.fault.reason


def test_the_end_of_the_file_is_no_fault() -> None:
    scan = scan_of(sound(BASE), sound(BASE + 2, epoch=4))
    assert [header.base_offset for _, header, _ in scan] == [BASE, BASE + 2]
    assert scan.fault is None
    assert (scan.next_offset, scan.leader_epoch, scan.position) == (BASE + 4, 4, 2 * len(FIRST))


def test_an_empty_segment_is_sound() -> None:
    scan = scan_of()
    assert list(scan) == []
    assert scan.fault is None
    assert scan.next_offset == BASE


@pytest.mark.parametrize(("dense_from", "is_sound"), [(0, False), (BASE + 8, False), (BASE + 9, True), (1 << 62, True)])
def test_compaction_may_have_left_out_offsets(dense_from: int, is_sound: bool) -> None:
    scan = scan_of(sound(BASE), sound(BASE + 9), dense_from=dense_from)
    assert len(list(scan)) == (2 if is_sound else 1)
    assert (scan.fault is None) == is_sound


def test_the_first_batch_continues_what_came_before() -> None:
    for options in ({"next_offset": BASE + 1}, {"leader_epoch": 4}):
        scan = scan_of(sound(BASE), **options)
        assert list(scan) == []
        assert scan.fault is not None


@pytest.mark.parametrize("chunk_bytes", [61, 100, 200, 1000])
def test_batches_of_all_sizes_through_a_small_buffer(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(scanning, "CHUNK_BYTES", chunk_bytes)
    sizes = [1, 500, 0, 90, 3000, 7, 139]
    batches = [sound(BASE + number, count=1, value=b"." * size) for number, size in enumerate(sizes)]
    scan = scan_of(*batches)
    assert [bytes(batch) for _, _, batch in scan] == [bytes(batch) for batch in batches]
    assert scan.fault is None


@pytest.mark.parametrize("chunk_bytes", [61, 100, 1000])
def test_a_torn_end_through_a_small_buffer(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    monkeypatch.setattr(scanning, "CHUNK_BYTES", chunk_bytes)
    whole, last = sound(BASE, count=1), sound(BASE + 1, count=1, value=b"." * 300)
    for left in range(1, len(last)):
        scan = scan_of(whole, last[:left])
        assert len(list(scan)) == 1
        assert scan.fault is not None
        assert scan.fault.position == len(whole)


def test_zeros_at_the_end_are_a_fault() -> None:
    """What a file system leaves where the length arrived and the data did not."""
    for count in (1, 12, 60, 61, 62, 5000):
        scan = scan_of(FIRST, bytes(count))
        assert len(list(scan)) == 1
        assert scan.fault is not None


@pytest.mark.parametrize("left_bytes", [0, 30, len(FIRST), len(FIRST) + 30, len(FIRST) + 70])
@pytest.mark.timeout(30)
def test_a_file_that_is_shorter_than_it_was_is_a_fault(left_bytes: int) -> None:
    """As when somebody has cut it while the log was open."""
    files = SimulatedFiles()
    segment = Segment(files, "", BASE, created_ms=0, index_interval_bytes=100)
    segment.append(FIRST + sound(BASE + 2))
    files.open(segment.path(LOG)).truncate(left_bytes)
    scan = SegmentScan(segment)
    assert len(list(scan)) == left_bytes // len(FIRST)
    assert scan.fault is not None
    assert scan.fault.reason.startswith(f"the file ends at byte {left_bytes}")
