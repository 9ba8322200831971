"""A batch that the broker itself cannot read, as its length has rotted: told at once, behind what is sound."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import testing
from ottla.client import BatchReader, Consumer, DamagedBatch, MalformedAnswer, Producer, Reader, TopicPartition
from tests.connect.mirror.damage_contract import spoil

PLACE = TopicPartition("t", 0)
SPOILT, BATCHES = 2, 4
LENGTH_BYTE, BIT = 9, 4


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with testing.broker() as broker:
        broker.topic("t", partitions=1)
        with Producer(broker.bootstrap) as producer:
            for number in range(BATCHES):
                producer.send_many("t", [b"%d" % number])
        spoil(Path(broker.folder) / "t-0" / f"{0:020}.log", LENGTH_BYTE, BIT, SPOILT)
        yield broker.bootstrap


def read_all(reader: Reader, found: list[bytes | None]) -> None:
    while True:
        found += [record.value for fetched in reader.poll(100) for record in fetched.records]


def test_a_reader_gives_what_is_sound_and_then_tells(bootstrap: str) -> None:
    found: list[bytes | None] = []
    with Reader(bootstrap, "t", [0]) as reader:
        told = f"topic t, partition 0: a damaged batch at or behind offset {SPOILT}"
        with pytest.raises(MalformedAnswer, match=told):
            read_all(reader, found)
        assert found == [b"0", b"1"]
        assert reader.offsets[0] == SPOILT


def read_batches(reader: BatchReader) -> None:
    while True:
        reader.poll(100)


def test_a_batch_reader_tells(bootstrap: str) -> None:
    with BatchReader(bootstrap) as reader:
        reader.assign({PLACE: 0})
        with pytest.raises(DamagedBatch):
            read_batches(reader)


def test_a_consumer_tells_and_may_seek_behind_it(bootstrap: str) -> None:
    with Consumer(bootstrap, "t", group="g") as consumer:
        assert [next(iter(consumer)).value for _ in range(SPOILT)] == [b"0", b"1"]
        with pytest.raises(DamagedBatch, match="the broker cannot read it"):
            next(iter(consumer))
        consumer.seek(PLACE, SPOILT + 1)
        assert next(iter(consumer)).value == b"3"
