"""A partition with one replica: what is produced is readable at once, and who waits is told."""

from __future__ import annotations

import pytest

from ottla.log.errors import OffsetOutOfRange
from ottla.log.producers import Origin
from ottla.log.recovery import open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import ControlMarker, build_batch, build_marker
from ottla.records.read import read_records
from ottla.records.validate import InvalidRecords
from ottla.replica.errors import FencedLeaderEpoch, UnknownLeaderEpoch
from ottla.replica.partition import Partition
from ottla.replica.readers import Bound
from ottla.testing.files import SimulatedFiles
from tests.replica.shell import ManualShell, sole_leader

NOW_MS = 1_700_000_000_000


class Waiting:
    def __init__(self) -> None:
        self.told: list[int] = []

    def advanced(self, partition: Partition, added_bytes: int) -> None:
        self.told.append(added_bytes)


def make(leader_epoch: int = 3, **settings: object) -> Partition:
    config = TopicConfig(**settings)  # type: ignore[arg-type]
    log = open_log(SimulatedFiles(), "/data/t-0", config, now_ms=NOW_MS)
    return sole_leader(log, ManualShell(), epoch=leader_epoch)


@pytest.fixture
def partition() -> Partition:
    return make()


def produce(partition: Partition, *values: bytes, **producer: int | bool) -> int:
    batch = build_batch(list(values), timestamp=NOW_MS, **producer)  # type: ignore[arg-type]
    placed = partition.writer.produce(batch, version=12, has_transactional_id=True, now_ms=NOW_MS)
    partition.end_round()
    return placed[0]


def values(partition: Partition, offset: int, *, committed_only: bool = False) -> list[bytes | None]:
    read = partition.read(offset, 1 << 20, committed_only=committed_only)
    if read.records is None:
        return []
    return [record.value for record in read_records(read.records.read(), start_offset=offset)]


def test_what_is_produced_can_be_read_at_once(partition: Partition) -> None:
    assert produce(partition, b"a", b"b") == 0
    assert produce(partition, b"c") == 2
    assert values(partition, 1) == [b"b", b"c"]
    read = partition.read(0, 1, committed_only=False)
    assert (read.high_watermark, read.last_stable_offset, read.log_start_offset) == (3, 3, 0)
    assert read.aborted is None


def test_the_leader_epoch_is_in_every_batch(partition: Partition) -> None:
    produce(partition, b"a")
    read = partition.read(0, 1000, committed_only=False)
    assert read.records is not None
    assert read_header(read.records.read()).leader_epoch == 3
    assert partition.end_of_epoch(3) == (3, 1)


def test_a_time_that_the_topic_stamps_is_told_and_repeated_for_a_duplicate() -> None:
    partition = make(message_timestamp_type="LogAppendTime")
    batch = build_batch([b"a"], timestamp=5, producer_id=1, producer_epoch=0, base_sequence=0)
    first = partition.writer.produce(bytes(batch), version=12, now_ms=NOW_MS)
    again = partition.writer.produce(bytes(batch), version=12, now_ms=NOW_MS + 9)
    assert first == again == (0, 1, NOW_MS)
    assert partition.log.end_offset == 1


def test_bad_records_change_nothing_and_wake_nobody(partition: Partition) -> None:
    waiting = Waiting()
    partition.wait_for_records(waiting)
    with pytest.raises(InvalidRecords):
        partition.writer.produce(b"no batch", version=12, now_ms=NOW_MS)
    assert waiting.told == []
    assert partition.log.end_offset == 0


def test_who_waits_is_told_how_much_came(partition: Partition) -> None:
    waiting = Waiting()
    partition.wait_for_records(waiting)
    produce(partition, b"a")
    assert waiting.told == [partition.log.size_bytes]
    partition.stop_waiting(waiting)
    produce(partition, b"b")
    assert len(waiting.told) == 1


TRANSACTION: dict[str, int | bool] = {"producer_epoch": 0, "base_sequence": 0, "is_transactional": True}


def end_transaction(partition: Partition, producer_id: int) -> None:
    marker = build_marker(ControlMarker(True, 0), producer_id=producer_id, producer_epoch=0, timestamp=NOW_MS)
    partition.writer.append(marker, read_header(marker), NOW_MS, origin=Origin.COORDINATOR)
    partition.end_round()


def test_who_waits_for_committed_records_is_told_when_and_how_much_they_can_read(partition: Partition) -> None:
    waiting = Waiting()
    partition.wait_for_records(waiting, Bound.LAST_STABLE_OFFSET)
    produce(partition, b"plain")
    plain_bytes = partition.log.size_bytes
    assert waiting.told == [plain_bytes]
    produce(partition, b"first", producer_id=7, **TRANSACTION)
    between_bytes = partition.log.size_bytes - plain_bytes
    produce(partition, b"second", producer_id=8, **TRANSACTION)
    produce(partition, b"held back by both")
    assert waiting.told == [plain_bytes]  # nothing of that can be read
    end_transaction(partition, 7)
    assert waiting.told == [plain_bytes, between_bytes]  # up to where the second begins
    end_transaction(partition, 8)
    assert sum(waiting.told) == partition.log.size_bytes
    partition.stop_waiting(waiting)
    produce(partition, b"nobody waits")
    assert len(waiting.told) == 3


def test_epochs_of_the_past_and_of_the_future_are_refused(partition: Partition) -> None:
    partition.check_epoch(-1)
    partition.check_epoch(3)
    with pytest.raises(FencedLeaderEpoch):
        partition.check_epoch(2)
    with pytest.raises(UnknownLeaderEpoch):
        partition.check_epoch(4)


def test_a_committed_reader_stops_before_an_open_transaction(partition: Partition) -> None:
    produce(partition, b"plain")
    produce(partition, b"open", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert values(partition, 0, committed_only=True) == [b"plain"]
    assert values(partition, 1, committed_only=True) == []
    assert values(partition, 1) == [b"open"]
    assert partition.read(0, 1000, committed_only=True).aborted == []


def test_a_committed_reader_of_a_follower_that_was_started_anew_stops_there_too(partition: Partition) -> None:
    produce(partition, b"plain")
    produce(partition, b"open", producer_id=7, **TRANSACTION)
    again = Partition("t", 0, bytes(16), partition.log, 2, ManualShell())
    again.apply(leader_id=1, leader_epoch=3, partition_epoch=1, replicas=[1, 2], in_sync=[1, 2], now_ms=0)
    assert again.log.high_watermark == 2
    assert values(again, 0, committed_only=True) == [b"plain"]
    assert again.read(0, 1000, committed_only=True).last_stable_offset == 1


def test_a_committed_reader_is_told_what_was_aborted(partition: Partition) -> None:
    produce(partition, b"open", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    marker = build_marker(ControlMarker(False, 0), producer_id=7, producer_epoch=0, timestamp=NOW_MS)
    partition.writer.append(marker, read_header(marker), NOW_MS)
    aborted = partition.read(0, 1000, committed_only=True).aborted
    assert aborted is not None
    assert [(entry.producer_id, entry.first_offset) for entry in aborted] == [(7, 0)]


def test_a_reader_with_another_past_is_told_where_it_parts(partition: Partition) -> None:
    produce(partition, b"a", b"b")
    partition.leader_epoch = 5
    produce(partition, b"c")
    assert partition.read(3, 1000, committed_only=False, last_fetched_epoch=5).diverging is None
    assert partition.read(3, 1000, committed_only=False, last_fetched_epoch=3).diverging == (3, 2)
    assert partition.read(2, 1000, committed_only=False, last_fetched_epoch=4).diverging == (3, 2)
    with pytest.raises(OffsetOutOfRange):
        partition.read(2, 1000, committed_only=False, last_fetched_epoch=9)


def test_also_by_a_leader_that_has_written_nothing_in_its_epoch(partition: Partition) -> None:
    """Who was elected without the last records has none of an epoch of its own yet, as the reader has."""
    produce(partition, b"a", b"b")
    partition.leader_epoch = 6
    assert partition.end_of_epoch(5) == (3, 2)
    assert partition.read(4, 1000, committed_only=False, last_fetched_epoch=5).diverging == (3, 2)
    assert partition.read(2, 1000, committed_only=False, last_fetched_epoch=3).diverging is None
    with pytest.raises(OffsetOutOfRange):
        partition.read(2, 1000, committed_only=False, last_fetched_epoch=7)


def test_records_are_deleted_up_to_the_high_watermark_and_no_further(partition: Partition) -> None:
    produce(partition, b"a", b"b", b"c")
    assert partition.delete_records(2, NOW_MS) == 2
    assert partition.delete_records(1, NOW_MS) == 2
    assert partition.delete_records(-1, NOW_MS) == 3
    for offset in (4, -2):
        with pytest.raises(OffsetOutOfRange):
            partition.delete_records(offset, NOW_MS)
