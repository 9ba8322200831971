"""Producer snapshots: Kafka's bytes, both ways; what is torn is never believed."""

import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.errors import CorruptLog
from ottla.log.producers import AppendedBatch, Producer, Producers
from ottla.log.snapshot import Snapshots, pack_snapshot, unpack_snapshot
from ottla.testing.files import SimulatedFiles
from tests.log.expected import ProducerState

OFFSETS = st.integers(0, 2**62)


@st.composite
def producer(draw: st.DrawFn) -> Producer:
    made = Producer(draw(st.integers(0, 2**15 - 1)))
    made.coordinator_epoch = draw(st.integers(-1, 1000))
    made.last_timestamp = draw(st.integers(-1, 2**50))
    made.transaction_start = draw(st.none() | OFFSETS)
    for _ in range(draw(st.integers(0, 3))):
        delta = draw(st.integers(0, 1000))
        offset = delta + draw(OFFSETS)
        made.batches.append(AppendedBatch(draw(st.integers(0, 2**31 - 1)), offset, delta, made.last_timestamp))
    return made


def producers_of(by_id: dict[int, Producer]) -> Producers:
    producers = Producers()
    producers.restore(by_id.items())
    return producers


def states(producers: Producers) -> dict[int, ProducerState]:
    return {producer_id: ProducerState.of(each) for producer_id, each in producers.by_id.items()}


@given(st.dictionaries(OFFSETS, producer(), max_size=5))
def test_what_was_packed_is_unpacked(by_id: dict[int, Producer]) -> None:
    producers = producers_of(by_id)
    restored = producers_of(dict(unpack_snapshot(pack_snapshot(producers))))
    assert states(restored) == states(producers)
    for producer_id, each in restored.by_id.items():
        assert list(each.batches) == list(by_id[producer_id].batches)[-1:]
    assert restored.first_undecided_offset == producers.first_undecided_offset


def test_the_bytes_are_kafkas() -> None:
    made = Producer(2)
    made.batches.append(AppendedBatch(11, 40, 3, 1000))
    made.last_timestamp = 1000
    made.coordinator_epoch = 5
    made.transaction_start = 38
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, 11, 40, 3, 1000, 5, 38)
    assert pack_snapshot(producers_of({7: made})) == struct.pack(">hI", 1, crc32c(body)) + body


@given(st.data())
def test_a_changed_bit_or_a_cut_is_seen(data: st.DataObject) -> None:
    packed = bytearray(pack_snapshot(producers_of({7: Producer(0), 8: Producer(1)})))
    if data.draw(st.booleans()):
        del packed[data.draw(st.integers(0, len(packed) - 1)) :]
    else:
        packed[data.draw(st.integers(0, len(packed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(CorruptLog):
        unpack_snapshot(bytes(packed))


def test_the_newest_sound_snapshot_is_taken_and_torn_ones_go() -> None:
    files = SimulatedFiles()
    snapshots = Snapshots(files, "folder")
    files.make_folder("folder")
    snapshots.take(10, producers_of({7: Producer(0)}))
    snapshots.take(20, producers_of({7: Producer(1)}))
    snapshots.take(30, producers_of({7: Producer(2)}))
    snapshots.take(40, producers_of({7: Producer(3)}))
    files.open(snapshots.path(40)).truncate(9)
    files.remove(snapshots.path(30))
    restored = Producers()
    assert snapshots.restore(restored) == 20
    assert restored.by_id[7].epoch == 1
    assert snapshots.offsets == [10, 20]
    assert sorted(files.sizes("folder")) == [f"{offset:020d}.snapshot" for offset in (10, 20)]


def test_none_is_none() -> None:
    assert Snapshots(SimulatedFiles(), "").restore(Producers()) is None


def test_an_offset_has_one_snapshot() -> None:
    files = SimulatedFiles()
    snapshots = Snapshots(files, "")
    snapshots.take(10, producers_of({7: Producer(0)}))
    count = files.operation_count
    snapshots.take(10, producers_of({7: Producer(9)}))
    assert files.operation_count == count


def test_snapshots_are_removed_by_offset() -> None:
    files = SimulatedFiles()
    snapshots = Snapshots(files, "")
    for offset in (10, 20, 30):
        snapshots.take(offset, Producers())
    snapshots.remove(lambda taken: taken > 10)
    assert snapshots.offsets == [10]
    assert list(files.sizes("")) == [f"{10:020d}.snapshot"]
