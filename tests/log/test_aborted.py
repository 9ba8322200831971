"""The index of aborted transactions: Kafka's 34 bytes, and only what is sound."""

import struct

import pytest

from ottla.log.aborted import AbortedIndex, AbortedTransaction, pack_entry, unpack_entries
from ottla.log.errors import CorruptLog
from ottla.testing.files import SimulatedFiles

FIRST = AbortedTransaction(7, 10, 20, 15)
SECOND = AbortedTransaction(8, 15, 30, 31)


def index_of(files: SimulatedFiles, *entries: AbortedTransaction) -> AbortedIndex:
    index = AbortedIndex(files, "txnindex")
    for entry in entries:
        index.append(entry)
    return index


def test_an_entry_is_stored_as_kafka_stores_it() -> None:
    assert pack_entry(FIRST) == struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    assert len(pack_entry(FIRST)) == 34


def test_what_was_written_is_loaded() -> None:
    files = SimulatedFiles()
    index = index_of(files, FIRST)
    index.write()
    index.append(SECOND)
    index.write()
    assert AbortedIndex.load(files, "txnindex").entries == [FIRST, SECOND]


def test_a_segment_without_aborts_has_no_file() -> None:
    files = SimulatedFiles()
    index_of(files).write()
    assert not files.exists("txnindex")


def test_half_an_entry_at_the_end_is_left_out() -> None:
    assert unpack_entries(pack_entry(FIRST) + pack_entry(SECOND)[:-1]) == [FIRST]


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">hqqqq", 1, 7, 10, 20, 15),
        struct.pack(">hqqqq", 0, 7, 21, 20, 15),
        struct.pack(">hqqqq", 0, 7, -1, 20, 15),
        bytes(34),  # length without data
    ],
)
def test_an_entry_that_cannot_be_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptLog):
        unpack_entries(data)
    files = SimulatedFiles()
    files.replace("txnindex", pack_entry(FIRST) + data)
    index = AbortedIndex.load(files, "txnindex")
    assert (index.is_sound, index.entries) == (False, [])
    index.forget()
    assert index.is_sound


@pytest.mark.parametrize(("offset", "left"), [(31, [FIRST, SECOND]), (30, [FIRST]), (21, [FIRST]), (20, []), (0, [])])
def test_truncation_forgets_aborts_by_their_marker(offset: int, left: list[AbortedTransaction]) -> None:
    for is_written in (False, True):
        files = SimulatedFiles()
        index = index_of(files, FIRST, SECOND)
        if is_written:
            index.write()
        index.truncate_to(offset)
        assert index.entries == left
        later = AbortedTransaction(9, 40, 50, 51)
        index.append(later)
        index.write()
        assert AbortedIndex.load(files, "txnindex").entries == [*left, later]


def test_an_index_that_cannot_be_trusted_starts_anew() -> None:
    files = SimulatedFiles()
    index = index_of(files, FIRST)
    index.write()
    index.forget()
    assert index.entries == []
    assert AbortedIndex.load(files, "txnindex").entries == [FIRST]  # until it is known what there is
    index.write()
    assert not files.exists("txnindex")
