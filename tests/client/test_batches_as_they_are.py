"""Whole batches: read as bytes with BatchReader, and written as they are with `Producer.send_batches`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import testing
from ottla.client import (
    LATEST,
    Admin,
    BatchReader,
    ConfigChange,
    ConfigOperation,
    DeliveryFailed,
    FetchedData,
    InvalidRecord,
    MalformedAnswer,
    NewRecord,
    Producer,
    Reader,
    Resource,
    ResourceKind,
    ServerError,
    TopicPartition,
    TopicRecreated,
)
from ottla.records.batch import read_header, stamp_crc
from ottla.records.build import ControlMarker, build_batch, build_marker
from ottla.testing import LocalBroker

HERE, THERE = TopicPartition("here", 0), TopicPartition("there", 1)


@pytest.fixture
def broker() -> Iterator[LocalBroker]:
    with testing.broker() as running:
        running.topic("here", partitions=2)
        running.topic("there", partitions=2)
        yield running


def poll_until(reader: BatchReader, count: int) -> list[FetchedData]:
    found: list[FetchedData] = []
    while sum(data.next_offset - data.fetch_offset for data in found) < count:
        found += reader.poll(10_000)
    return found


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_batch_is_moved_without_a_look_at_its_records(broker: LocalBroker, codec: str) -> None:
    records = [NewRecord(f"{number}".encode(), b"k", [("h", b"1")], 0, 1_000 + number) for number in range(50)]
    with Producer(broker.bootstrap, codec=codec) as producer, BatchReader(broker.bootstrap) as reader:
        producer.send_many("here", records)
        reader.assign({HERE: 0})
        [data] = poll_until(reader, 50)
        assert producer.send_batches((THERE, batch) for batch in data.visible()) == [0]  # known to be sound
        batches = [(THERE, batch.bytes) for batch in data.visible()]
        assert producer.send_batches(batches) == [50]  # numbered as others are
        with Producer(broker.bootstrap, transactional_id="t") as transactional, transactional.transaction():
            assert transactional.send_batches(batches * 2) == [100, 150]
        reader.assign({THERE: 0})
        copies = [batch for data in poll_until(reader, 201) for batch in data.visible()]
    assert [bytes(copy.bytes[61:]) for copy in copies] == [bytes(batches[0][1][61:])] * 4
    assert [copy.header.is_transactional for copy in copies] == [False, False, True, True]
    with Reader(broker.bootstrap, "there", [1], end=50) as found:
        read = [record for fetched in found for record in fetched.records]
    assert [(record.value, record.timestamp) for record in read] == [(one.value, one.timestamp_ms) for one in records]


def test_a_batch_that_is_too_large_is_cut(broker: LocalBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        change = ConfigChange("max.message.bytes", ConfigOperation.SET, "5000")
        admin.alter_configs(Resource(ResourceKind.TOPIC, "there"), [change])
    batch = build_batch([b"x" * 1_000] * 20, timestamp=5, keys=[b"%d" % number for number in range(20)])
    with Producer(broker.bootstrap) as producer:
        assert producer.send_batches([(THERE, bytes(batch))]) == [0]
    with Reader(broker.bootstrap, "there", [1], end=20) as reader:
        found = [record.key for fetched in reader for record in fetched.records]
    assert found == [b"%d" % number for number in range(20)]


def test_what_cannot_be_sent_as_it_is_is_refused(broker: LocalBroker) -> None:
    good = build_batch([b"a", b"b"], timestamp=1)
    marker = build_marker(
        ControlMarker(is_commit=True, coordinator_epoch=0), producer_id=1, producer_epoch=0, timestamp=1
    )
    stamped = build_batch([b"a"], timestamp=1, log_append_time=5)
    rotten = good.copy()
    rotten[-1] ^= 1
    with Producer(broker.bootstrap) as producer:
        for batch in (marker, stamped, rotten, good + b"x", b""):
            with pytest.raises(InvalidRecord):
                producer.send_batches([(THERE, bytes(batch))])
        with pytest.raises(InvalidRecord, match="topic there has no partition 7: it has 2"):
            producer.send_batches([(TopicPartition("there", 7), bytes(good))])
        assert read_header(good).count == 2
        assert producer.send_batches([(THERE, bytes(good))]) == [0]


def test_many_partitions_are_read_and_trouble_with_one_is_told_with_its_name(broker: LocalBroker) -> None:
    other = TopicPartition("there", 0)
    with Producer(broker.bootstrap) as producer, BatchReader(broker.bootstrap) as reader:
        for place in (HERE, other):
            producer.send_many(place.topic, [NewRecord(b"a", partition=0)])
        reader.assign({HERE: 0, other: 0})
        assert {data.topic for data in poll_until(reader, 2)} == {"here", "there"}
        assert reader.offsets == {HERE: 1, other: 1}
        reader.assign({other: 17})
        with pytest.raises(ServerError, match="offset 17 is not in the partition") as refused:
            poll_until(reader, 1 << 30)
        assert (refused.value.topic, refused.value.partition) == other
        reader.drop([other])
        producer.send_many("here", [NewRecord(b"b", partition=0)])
        assert [data.topic for data in poll_until(reader, 1)] == ["here"]


def test_a_topic_that_was_created_again_is_told(broker: LocalBroker) -> None:
    with BatchReader(broker.bootstrap) as reader, Producer(broker.bootstrap) as producer:
        producer.send_many("here", [NewRecord(b"a", partition=0)])
        reader.assign({HERE: 0})
        poll_until(reader, 1)
        with Admin(broker.bootstrap) as admin:
            admin.delete_topics(["here"])
        broker.topic("here", partitions=2)
        with pytest.raises((TopicRecreated, ServerError)) as told:
            poll_until(reader, 1 << 30)
        assert isinstance(told.value, TopicRecreated)


@pytest.mark.parametrize("spoilt_at", [-1, -10], ids=["no record can be read", "a value is another"])
@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_a_batch_that_was_damaged_does_not_become_sound(broker: LocalBroker, acks: str, spoilt_at: int) -> None:
    """Nobody looks at its records, and its checksum is made from the one that it has."""
    spoilt = build_batch([b"x" * 100] * 10, timestamp=1, base_offset=0)
    spoilt[spoilt_at] ^= 1
    data = FetchedData("here", 0, 0, bytes(spoilt), [], 10)
    [batch] = data.visible(check_crc=False)
    with pytest.raises(
        MalformedAnswer, match="topic here, partition 0: a damaged batch at or behind offset 0: checksum is"
    ):
        data.check(batch)
    with Producer(broker.bootstrap, acks=acks) as producer:
        refusal = InvalidRecord if acks == "0" else DeliveryFailed
        with pytest.raises(refusal, match="checksum is"):
            producer.send_batches([(THERE, batch)])
        with Reader(broker.bootstrap, "there", end=LATEST) as reader:
            assert list(reader) == []
        sound = FetchedData("here", 0, 0, bytes(build_batch([b"a"], timestamp=1)), [], 1)
        producer.send_batches((THERE, each) for each in sound.visible(check_crc=False))


def test_a_marker_that_was_damaged_is_not_believed() -> None:
    marker = build_marker(ControlMarker(True, 0), producer_id=1, producer_epoch=0, timestamp=1)
    marker[-1] ^= 1
    with pytest.raises(MalformedAnswer, match="a damaged batch"):
        list(FetchedData("here", 0, 0, bytes(marker), [(1, 0)], 1).visible(check_crc=False))


def test_a_partition_with_much_to_read_keeps_no_other_waiting(broker: LocalBroker) -> None:
    """An answer has room for one batch: each partition has its turn."""
    broker.topic("three", partitions=3)
    places = [TopicPartition("three", index) for index in range(3)]
    with Producer(broker.bootstrap) as producer, BatchReader(broker.bootstrap, fetch_bytes=1) as reader:
        for _ in range(5):
            producer.send_many("three", [NewRecord(b"v", partition=place.partition) for place in places])
        reader.assign(dict.fromkeys(places, 0))
        found: list[FetchedData] = []
        while len(found) < 6:
            found += reader.poll(10_000)
        assert [data.partition for data in found[:6]] == [0, 1, 2] * 2
    with Reader(broker.bootstrap, "three", fetch_bytes=1) as plain:
        assert [plain.poll(10_000)[0].partition for _ in range(6)] == [0, 1, 2] * 2


def test_a_broker_that_restarts_is_waited_for(broker: LocalBroker) -> None:
    with BatchReader(broker.bootstrap) as reader:
        reader.assign({HERE: 0})
        assert reader.poll(50) == []
        with broker.down(kill=True):
            assert reader.poll(200) == []
        with Producer(broker.bootstrap) as producer:
            producer.send_many("here", [NewRecord(b"a", partition=0)])
        assert [data.next_offset for data in poll_until(reader, 1)] == [1]


def test_a_batch_that_is_too_large_and_cannot_be_read_is_refused(broker: LocalBroker) -> None:
    with Admin(broker.bootstrap) as admin:
        change = ConfigChange("max.message.bytes", ConfigOperation.SET, "500")
        admin.alter_configs(Resource(ResourceKind.TOPIC, "there"), [change])
    spoilt = build_batch([b"x" * 1_000] * 10, timestamp=1)
    spoilt[-30:] = b"\xff" * 30
    stamp_crc(spoilt, 0, len(spoilt))  # the checksum of what is in it now
    with Producer(broker.bootstrap) as producer:
        with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE"):
            producer.send_batches([(THERE, bytes(spoilt))])
        assert producer.send_batches([(THERE, bytes(build_batch([b"a"], timestamp=1)))]) == [0]


def test_a_damaged_batch_that_is_too_large_is_not_cut(broker: LocalBroker) -> None:
    """Its parts would have checksums that are right."""
    with Admin(broker.bootstrap) as admin:
        change = ConfigChange("max.message.bytes", ConfigOperation.SET, "5000")
        admin.alter_configs(Resource(ResourceKind.TOPIC, "there"), [change])
    spoilt = build_batch([b"x" * 1_000] * 20, timestamp=1)
    spoilt[-10] ^= 1
    [batch] = FetchedData("here", 0, 0, bytes(spoilt), [], 20).visible(check_crc=False)
    with Producer(broker.bootstrap) as producer, pytest.raises(DeliveryFailed, match="is damaged: checksum is"):
        producer.send_batches([(THERE, batch)])
    with Reader(broker.bootstrap, "there", end=LATEST) as reader:
        assert list(reader) == []


def check_all(data: FetchedData) -> None:
    for batch in data.visible(check_crc=False):
        data.check(batch)


@pytest.mark.parametrize("fetch_offset", [100, 105])
def test_no_flipped_bit_hides_a_batch(fetch_offset: int) -> None:
    """It is told, or the batch goes on with a checksum that is wrong. Two fields are not under the checksum, and say
    nothing of the records: the offset that the log gave, and the leader epoch."""
    batch = build_batch(
        [b"x" * 20] * 10, timestamp=1, base_offset=100, producer_id=1000, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip
    next_batch = build_batch([b"y"], timestamp=1, base_offset=110)
    aborted = [(1001, 50)]  # one bit away
    for position in [*range(8, 12), *range(16, len(batch))]:
        for bit in range(8):
            spoilt = batch.copy()
            spoilt[position] ^= 1 << bit
            data = FetchedData("here", 0, fetch_offset, bytes(spoilt + next_batch), aborted, 111)
            with pytest.raises(MalformedAnswer, match="damaged batch"):
                check_all(data)
