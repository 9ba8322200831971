"""Offset and time index: against plain lists, in memory and in files, and in Kafka's layout."""

import errno
import struct
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.index import SPILL_ENTRIES, OffsetIndex, TimeIndex
from ottla.testing.files import Effect, SimulatedFiles

BASE = 1000
RISING = st.lists(st.integers(0, 50_000), min_size=1, max_size=60, unique=True).map(sorted)


def offset_index(offsets: list[int], *, written: int = 0, files: SimulatedFiles | None = None) -> OffsetIndex:
    """Entries at 10 bytes for each offset, the first `written` of them in the file."""
    index = OffsetIndex(files or SimulatedFiles(), "index", BASE)
    for number, offset in enumerate(offsets):
        if number == written and written:
            index.write()
        index.append(BASE + offset, offset * 10)
    return index


@given(offsets=RISING, written=st.integers(0, 60), asked=st.integers(-5, 50_010))
def test_a_position_is_that_of_the_last_entry_not_behind(offsets: list[int], written: int, asked: int) -> None:
    index = offset_index(offsets, written=written)
    found = bisect_right(offsets, asked)
    assert index.position_before(BASE + asked) == (offsets[found - 1] * 10 if found else 0)


@given(offsets=RISING, asked=st.integers(0, 500_000), written=st.integers(0, 60))
def test_truncation_keeps_the_entries_that_lie_before(offsets: list[int], asked: int, written: int) -> None:
    index = offset_index(offsets, written=written)
    index.truncate_to_position(asked)
    kept = [offset for offset in offsets if offset * 10 < asked]
    assert [index.raw_entry(number) for number in range(len(index))] == [(offset, offset * 10) for offset in kept]
    index.append(BASE + 60_000, 600_000)
    index.write()
    assert index.position_before(BASE + 60_000) == 600_000
    assert len(index) == len(kept) + 1


def test_entries_are_stored_as_kafka_stores_them() -> None:
    files = SimulatedFiles()
    index = offset_index([3, 70], files=files)
    index.write()
    assert files.read_all("index") == struct.pack(">iiii", 3, 30, 70, 700)
    times = TimeIndex(files, "timeindex", BASE)
    times.append(1_700_000_000_000, BASE + 5)
    times.write()
    assert files.read_all("timeindex") == struct.pack(">qi", 1_700_000_000_000, 5)


def test_an_index_without_entries_has_an_empty_file_once_it_is_written() -> None:
    files = SimulatedFiles()
    index = offset_index([], files=files)
    assert index.position_before(BASE + 7) == 0
    index.write()
    assert files.read_all("index") == b""


def test_entries_go_to_the_file_when_there_are_many() -> None:
    files = SimulatedFiles()
    index = offset_index(list(range(SPILL_ENTRIES + 5)), files=files)
    assert len(files.read_all("index")) == SPILL_ENTRIES * 8
    assert len(index) == SPILL_ENTRIES + 5
    for offset in (0, 1, SPILL_ENTRIES - 1, SPILL_ENTRIES, SPILL_ENTRIES + 4):
        assert index.position_before(BASE + offset) == offset * 10


def test_entries_stay_in_memory_while_the_disk_is_full() -> None:
    files = SimulatedFiles()
    for number in range(1, 6):
        files.arm(number, Effect.TEAR, errno.ENOSPC)
    index = offset_index(list(range(SPILL_ENTRIES + 2)), files=files)
    assert len(index) == SPILL_ENTRIES + 2
    files.disarm()
    index.append(BASE + 9000, 90_000)
    assert len(files.read_all("index")) == (SPILL_ENTRIES + 3) * 8
    for offset in (0, SPILL_ENTRIES - 1, SPILL_ENTRIES + 1, 9000):
        assert index.position_before(BASE + offset) == offset * 10


def test_a_loaded_index_goes_on_behind_what_is_there() -> None:
    """Also where a torn write left half an entry."""
    files = SimulatedFiles()
    offset_index([1, 2], files=files).write()
    files.open("index").append(b"\xff\xff\xff")
    index = OffsetIndex(files, "index", BASE, file_bytes=files.sizes("")["index"])
    index.append(BASE + 3, 30)
    index.write()
    assert files.read_all("index") == struct.pack(">6i", 1, 10, 2, 20, 3, 30)


@settings(max_examples=30)
@given(counts=st.lists(st.integers(1, 3000), min_size=1, max_size=4), asked=st.floats(0, 1))
def test_lookup_in_uneven_indexes(counts: list[int], asked: float) -> None:
    """Offsets that come densely for a while and then far apart."""
    offsets: list[int] = []
    for number, count in enumerate(counts):
        start = offsets[-1] + 1 if offsets else 0
        offsets += range(start, start + count * 10 ** (number * 2 % 5), 10 ** (number * 2 % 5))
    index = offset_index(offsets)
    wanted = round(offsets[-1] * asked)
    found = bisect_right(offsets, wanted)
    assert index.position_before(BASE + wanted) == (offsets[found - 1] * 10 if found else 0)


# Time


def time_index(entries: list[tuple[int, int]]) -> TimeIndex:
    index = TimeIndex(SimulatedFiles(), "timeindex", BASE)
    for timestamp, offset in entries:
        index.append(timestamp, BASE + offset)
    return index


def test_only_a_larger_timestamp_makes_an_entry() -> None:
    index = time_index([(100, 1), (100, 2), (90, 3), (101, 4)])
    assert [index.raw_entry(number) for number in range(len(index))] == [(100, 1), (101, 4)]
    assert index.last() == (101, BASE + 4)


def test_no_entry_no_last() -> None:
    assert time_index([]).last() is None
    assert time_index([]).offset_before(5) == BASE


@pytest.mark.parametrize(
    ("timestamp", "offset"), [(99, 0), (100, 0), (101, 1), (200, 1), (201, 5), (300, 5), (301, 9), (10**15, 9)]
)
def test_no_record_before_the_offset_is_as_late(timestamp: int, offset: int) -> None:
    index = time_index([(100, 1), (200, 5), (300, 9)])
    assert index.offset_before(timestamp) == BASE + offset


@pytest.mark.parametrize(("offset", "count"), [(0, 0), (1, 0), (2, 1), (5, 1), (6, 2), (9, 2), (10, 3)])
@pytest.mark.parametrize("is_written", [False, True])
def test_time_entries_go_with_the_batch_they_stand_for(offset: int, count: int, is_written: bool) -> None:
    index = time_index([(100, 1), (200, 5), (300, 9)])
    if is_written:
        index.write()
    index.truncate_to_offset(BASE + offset)
    assert len(index) == count


def test_an_index_that_cannot_be_trusted_starts_anew() -> None:
    files = SimulatedFiles()
    index = offset_index([1, 2], files=files)
    index.write()
    index.append(BASE + 3, 30)
    index.forget_file()
    assert len(index) == 0
    assert not files.exists("index")
    assert index.position_before(BASE + 3) == 0
