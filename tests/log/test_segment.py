"""A segment: finding batches, reading within limits, cutting, and what its files are called."""

from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

import pytest

import ottla.log.segment as segment_module
from ottla.log.errors import CorruptLog, LogDeleted
from ottla.log.files import DiskFiles, FileRange
from ottla.log.recovery import open_log
from ottla.log.segment import ABORTED_INDEX, DELETED, INDEX, LOG, SWAP, TIME_INDEX, Segment
from ottla.log.topic_config import TopicConfig
from ottla.log.visible import VisibleTally
from ottla.records.build import build_batch
from ottla.records.codec import stamp_batches
from ottla.records.read import read_records
from ottla.testing.files import SimulatedFiles
from tests.log.writing import append, new_log, served_values

BASE = 100


def new_segment(files: SimulatedFiles, **options: int) -> Segment:
    files.make_folder("folder")
    return Segment(files, "folder", BASE, created_ms=0, index_interval_bytes=options.get("index_interval_bytes", 100))


def reopened(files: SimulatedFiles) -> Segment:
    return Segment(files, "folder", BASE, created_ms=0, index_interval_bytes=100, sizes=files.sizes("folder"))


def write(segment: Segment, base_offset: int, count: int = 2, timestamp: int = 1000, value: bytes = b"value") -> bytes:
    """Write one batch; its bytes."""
    batch = build_batch([value] * count, timestamp=timestamp)
    stamp_batches(batch, base_offset, 0)
    position = segment.append(batch)
    segment.note_batch(position, len(batch), base_offset + count - 1, timestamp)
    return bytes(batch)


def filled(files: SimulatedFiles, count: int = 10) -> tuple[Segment, list[bytes]]:
    """Batches of two records each, from the base offset on."""
    segment = new_segment(files)
    return segment, [write(segment, BASE + number * 2, timestamp=1000 + number) for number in range(count)]


@pytest.fixture
def files() -> SimulatedFiles:
    return SimulatedFiles()


# Finding


@pytest.mark.parametrize("is_reopened", [False, True])
def test_every_offset_is_found_in_its_batch(files: SimulatedFiles, is_reopened: bool) -> None:
    segment, batches = filled(files)
    if is_reopened:
        segment.write_indexes()
        segment = reopened(files)
    assert len(segment.offset_index) > 2
    size = len(batches[0])
    for offset in range(BASE, BASE + 20):
        number = (offset - BASE) // 2
        assert segment.locate(offset) == (number * size, size, BASE + number * 2)
        assert segment.position_of(offset) == number * size
    assert segment.locate(BASE + 20) is None
    assert segment.position_of(BASE + 20) == segment.size_bytes


def test_what_lies_in_a_gap_is_found_in_the_next_batch(files: SimulatedFiles) -> None:
    segment = new_segment(files)
    first = write(segment, BASE)
    write(segment, BASE + 50)
    assert segment.locate(BASE + 7) == (len(first), len(first), BASE + 50)


def test_batches_larger_than_a_look_are_stepped_over(files: SimulatedFiles) -> None:
    segment = new_segment(files, index_interval_bytes=1 << 20)
    sizes = [len(write(segment, BASE + number, count=1, value=b"." * 5000)) for number in range(4)]
    assert segment.locate(BASE + 3) == (sum(sizes[:3]), sizes[3], BASE + 3)


def test_an_impossible_length_is_corrupt_and_no_endless_loop(files: SimulatedFiles) -> None:
    segment, _ = filled(files, 1)
    segment.append(bytes(100))
    with pytest.raises(CorruptLog):
        segment.locate(BASE + 5)
    with pytest.raises(CorruptLog):
        list(segment.batches())


def test_batches_from_a_position_on(files: SimulatedFiles) -> None:
    segment, batches = filled(files, 5)
    size = len(batches[0])
    assert [position for position, _ in segment.batches()] == [number * size for number in range(5)]
    assert [header.base_offset for _, header in segment.batches(3 * size)] == [BASE + 6, BASE + 8]


def test_what_is_written_behind_is_not_of_the_segment_yet(files: SimulatedFiles) -> None:
    """A reader must not see the bytes of an append that is under way."""
    segment, _ = filled(files, 2)
    segment.file.append(b"half a batch")
    assert len(list(segment.batches())) == 2
    assert segment.locate(BASE + 4) is None


# Reading


def read(segment: Segment, offset: int, max_bytes: int, end_position: int, *, whole_batch: bool) -> FileRange | None:
    place = segment.locate(offset)
    return None if place is None else segment.range_at(place, max_bytes, end_position, whole_batch=whole_batch)


def test_a_read_ends_at_the_limit_or_the_end(files: SimulatedFiles) -> None:
    segment, batches = filled(files, 4)
    size, end = len(batches[0]), segment.size_bytes
    cases = {
        (BASE, 10_000, end): batches,
        (BASE + 3, 10_000, end): batches[1:],
        (BASE, 2 * size, end): batches[:2],
        (BASE, 10_000, 3 * size): batches[:3],
        (BASE + 6, 10_000, end): batches[3:],
    }
    for (offset, max_bytes, end_position), expected in cases.items():
        for whole_batch in (False, True):
            found = read(segment, offset, max_bytes, end_position, whole_batch=whole_batch)
            assert found is not None
            assert found.read() == b"".join(expected)


def test_a_read_may_end_within_a_batch(files: SimulatedFiles) -> None:
    segment, batches = filled(files, 4)
    size, end = len(batches[0]), segment.size_bytes
    found = read(segment, BASE, size + 10, end, whole_batch=True)
    assert found is not None
    assert found.read() == batches[0] + batches[1][:10]


def test_the_first_batch_is_whole_if_asked_for(files: SimulatedFiles) -> None:
    segment, batches = filled(files, 4)
    end = segment.size_bytes
    whole = read(segment, BASE + 2, 5, end, whole_batch=True)
    assert whole is not None
    assert whole.read() == batches[1]
    assert read(segment, BASE + 2, 5, end, whole_batch=False) is None  # or a reader would get a piece of no use
    assert read(segment, BASE + 8, 100, end, whole_batch=True) is None
    assert read(segment, BASE + 2, 100, len(batches[0]), whole_batch=True) is None  # the end lies before it


# Cutting


@pytest.mark.parametrize("kept", range(6))
@pytest.mark.parametrize("is_written", [False, True])
def test_a_cut_forgets_all_that_lies_behind(files: SimulatedFiles, kept: int, is_written: bool) -> None:
    segment, batches = filled(files, 6)
    if is_written:
        segment.write_indexes()
    size = len(batches[0])
    segment.cut(kept * size, BASE + kept * 2)
    assert segment.size_bytes == segment.file.size_bytes == kept * size
    assert [header.base_offset for _, header in segment.batches()] == [BASE + number * 2 for number in range(kept)]
    assert segment.max_timestamp == (1000 + kept - 1 if kept else -1)
    assert segment.first_timestamp() == (1000 if kept else None)
    assert all(segment.offset_index.raw_entry(n)[1] < kept * size for n in range(len(segment.offset_index)))
    write(segment, BASE + kept * 2, timestamp=500)
    assert segment.first_timestamp() == (1000 if kept else 500)
    assert segment.locate(BASE + kept * 2 + 1) == (kept * size, size, BASE + kept * 2)


def test_the_largest_timestamp_is_found_again_where_no_entry_tells_it(files: SimulatedFiles) -> None:
    segment = new_segment(files, index_interval_bytes=1 << 20)
    size = len(write(segment, BASE, timestamp=50))
    write(segment, BASE + 2, timestamp=90)
    write(segment, BASE + 4, timestamp=70)
    segment.cut(2 * size, BASE + 4)
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (90, BASE + 3)
    segment.cut(size, BASE + 2)
    assert (segment.max_timestamp, segment.max_timestamp_offset) == (50, BASE + 1)


# Indexes and files


def test_an_entry_is_the_last_offset_of_a_batch_and_where_it_starts(files: SimulatedFiles) -> None:
    """After more than index.interval.bytes, and never for the first batch."""
    segment, batches = filled(files, 6)
    size = len(batches[0])
    every = 100 // size + 1
    entries = [segment.offset_index.raw_entry(number) for number in range(len(segment.offset_index))]
    assert entries == [(number * 2 + 1, number * size) for number in range(every, 6, every)]


def test_the_last_time_entry_is_the_largest_timestamp(files: SimulatedFiles) -> None:
    segment, _ = filled(files, 6)
    write(segment, BASE + 12, timestamp=5000)
    write(segment, BASE + 14, timestamp=20)
    segment.write_indexes()
    assert segment.time_index.last() == (5000, BASE + 13)
    again = reopened(files)
    assert (again.max_timestamp, again.max_timestamp_offset) == (5000, BASE + 13)


def test_next_offset_is_found_on_disk(files: SimulatedFiles) -> None:
    assert new_segment(files).next_offset() == BASE
    segment, _ = filled(files, 6)
    segment.write_indexes()
    assert reopened(files).next_offset() == BASE + 12


def test_age_without_timestamps_is_that_of_the_file(files: SimulatedFiles) -> None:
    files.now_ms = 77
    segment = new_segment(files)
    write(segment, BASE, timestamp=-1)
    assert segment.largest_timestamp() == 77
    write(segment, BASE + 2, timestamp=5)
    assert segment.largest_timestamp() == 5


@pytest.mark.parametrize("suffix", [DELETED, SWAP])
def test_all_files_change_their_suffix_and_are_still_read(files: SimulatedFiles, suffix: str) -> None:
    segment, batches = filled(files, 6)
    segment.write_indexes()
    reply = read(segment, BASE, 50, segment.size_bytes, whole_batch=True)
    segment.change_suffix(suffix)
    assert sorted(files.sizes("folder")) == sorted(f"{BASE:020d}{kind}{suffix}" for kind in (LOG, INDEX, TIME_INDEX))
    assert segment.paths() == [f"folder/{BASE:020d}{kind}{suffix}" for kind in (LOG, INDEX, TIME_INDEX, ABORTED_INDEX)]
    assert reply is not None
    assert reply.read() == batches[0]
    segment.close()
    assert segment.locate(BASE + 11) == (5 * len(batches[0]), len(batches[0]), BASE + 10)
    segment.change_suffix("")
    assert reopened(files).next_offset() == BASE + 12


def test_a_cut_batch_is_corrupt(files: SimulatedFiles) -> None:
    segment, batches = filled(files, 1)
    assert segment.read_batch(0, len(batches[0])) == batches[0]
    with pytest.raises(CorruptLog):
        segment.read_batch(5, len(batches[0]))


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_not_all_full_segments_are_open_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "MOST_OPEN", 5)
    monkeypatch.setattr(segment_module, "_open", OrderedDict())
    log = open_log(DiskFiles(), str(tmp_path), TopicConfig(), now_ms=0)
    before = open_files()
    for number in range(20):
        append(log, [b"%d" % number])
        log.roll(0)
    append(log, [b"20"])
    log.advance_high_watermark(21)
    assert open_files() <= before + 6
    assert served_values(log) == [b"%d" % number for number in range(21)]
    assert open_files() <= before + 6
    log.truncate_to(19, 0)
    for number in range(19, 25):
        assert append(log, [b"%d" % number]).base_offset == number
        assert served_values(log) == [b"%d" % each for each in range(number + 1)]


@pytest.mark.parametrize("removal", ["none", "retention", "both"])
def test_what_waits_to_be_sent_keeps_few_files_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    """A client that reads no answers may have asked for a piece of each of thousands of segments."""
    monkeypatch.setattr(segment_module, "MOST_OPEN", 5)
    monkeypatch.setattr(segment_module, "_open", OrderedDict())
    log = open_log(DiskFiles(), str(tmp_path), TopicConfig(), now_ms=0)
    for number in range(30):
        append(log, [b"%d" % number])
        log.roll(0)
    log.advance_high_watermark(30)
    before = open_files()
    waiting = [log.read(offset, 1, 30) for offset in range(30)]
    assert open_files() <= before + 5
    readable = 30
    if removal != "none":
        log.remove_first(30, 0)
        assert open_files() <= before + 5
    if removal == "both":
        for path in log.segments.due_removals(1 << 62):
            log.files.remove(path)
        assert open_files() <= before + 5
        readable = 5
    values = []
    for found in waiting:
        assert found is not None
        with suppress(FileNotFoundError):  # it is told as a closed connection
            values += [record.value for record in read_records(found.read())]
    assert values == [b"%d" % number for number in range(readable)]
    del waiting, found
    assert open_files() <= before


def test_a_segment_that_went_is_not_read_in_the_place_of_another_of_its_name(tmp_path: Path) -> None:
    log = open_log(DiskFiles(), str(tmp_path), TopicConfig(), now_ms=0)
    waiting: list[FileRange | None] = []
    for value in (b"first", b"second"):
        append(log, [value], epoch=len(waiting))
        log.advance_high_watermark(1)
        waiting.append(log.read(0, 1, 1))
        log.truncate_fully(0, 0)
    read = [read_records(found.read())[0].value for found in waiting if found is not None]
    assert read == [b"first", b"second"]


def test_an_index_is_dense_enough_to_search_whatever_the_topic_says() -> None:
    log = new_log(config=TopicConfig(index_interval_bytes=2**31 - 1))
    for _ in range(10):
        append(log, [bytes(100_000)])
    assert len(log.active.offset_index) >= 3


@pytest.mark.parametrize("removal", ["none", "retention"])
def test_what_waits_to_be_sent_of_a_deleted_log_is_sent_and_then_its_room_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removal: str
) -> None:
    """A topic that is deleted costs no reader its connection, on which it may read others."""
    monkeypatch.setattr(segment_module, "_open", OrderedDict())
    folder = tmp_path / "t-0"
    before = open_files()
    log = open_log(DiskFiles(), str(folder), TopicConfig(), now_ms=0)
    for number in range(10):
        append(log, [b"%d" % number])
        log.roll(0)
    append(log, [b"10"])
    log.advance_high_watermark(11)
    waiting = [log.read(offset, 1, 11) for offset in range(11)]
    if removal == "retention":
        log.remove_first(5, 0)
    log.retire()
    DiskFiles().remove_tree(str(folder))
    values = []
    for found in waiting:
        assert found is not None
        values += [record.value for record in read_records(found.read())]
    assert values == [b"%d" % number for number in range(11)]
    del waiting, found
    assert open_files() <= before
    with pytest.raises(LogDeleted):
        append(log, [b"none"])
    assert not folder.exists()


def test_a_segment_that_nobody_reads_is_not_kept_open_when_its_files_go(tmp_path: Path) -> None:
    """Or retention would make no room on the disk."""
    files, folder = DiskFiles(), str(tmp_path)
    log = open_log(files, folder, TopicConfig(), now_ms=0)
    for number in range(10):
        append(log, [b"%d" % number])
        log.roll(0)
    before = open_files()
    log = open_log(files, folder, TopicConfig(), now_ms=0)  # it reads them all
    log.advance_high_watermark(10)
    assert served_values(log) == [b"%d" % number for number in range(10)]
    tally = VisibleTally(log)
    for _ in tally.counting(0, 10):
        pass
    log.remove_first(10, 0)
    for path in log.segments.due_removals(1 << 62):
        files.remove(path)
    assert open_files() <= before
