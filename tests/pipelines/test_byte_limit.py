"""Batches that are limited in bytes: by what the records take, wherever they are large, and one record at least."""

import pickle
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ottla.client import Admin, ClientOptions, Isolation, NewRecord, Producer, TopicPartition
from ottla.pipelines.byte_limit import ByteLimit
from ottla.pipelines.client_options import Cluster
from ottla.pipelines.options import OptionError
from ottla.pipelines.source_options import source_options
from ottla.testing import LocalBroker
from tests.pipelines.test_readers import EVERYTHING, options, stream, values

OVERHEAD_BYTES = 20
"""Of a record, at most."""


@contextmanager
def byte_limit(broker: LocalBroker, most_bytes: int, patience_ms: int = 60_000) -> Iterator[ByteLimit]:
    limit = ByteLimit(Cluster(broker.bootstrap, ClientOptions()), Isolation.READ_COMMITTED, most_bytes, patience_ms)
    try:
        yield limit
    finally:
        limit.close()


def write(broker: LocalBroker, topic: str, sizes: list[int], partition: int = 0, codec: str = "none") -> None:
    """Records of these sizes; they hardly get smaller by compression."""
    values_of = [random.Random(size).randbytes(size) for size in sizes]
    with Producer(broker.bootstrap, codec=codec, batch_bytes=20_000) as producer:
        producer.send_many(topic, [NewRecord(value, partition=partition) for value in values_of])


def batches(limit: ByteLimit, sizes: dict[TopicPartition, list[int]]) -> list[dict[TopicPartition, list[int]]]:
    """What each batch takes of each partition, to the end."""
    at = dict.fromkeys(sizes, 0)
    last = {place: len(those) for place, those in sizes.items()}
    found = []
    while at != last:
        ends = limit.limited(at, last)
        assert ends != at
        assert all(at[place] <= end <= last[place] for place, end in ends.items())
        found.append({place: sizes[place][at[place] : end] for place, end in ends.items()})
        at = ends
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
@pytest.mark.ottla(topics={"t": 1})
def test_large_records_behind_small_ones_do_not_make_a_batch_larger(codec: str, ottla: LocalBroker) -> None:
    sizes = [10] * 3000 + [5000] * 60 + [10] * 1000 + [200_000] + [700] * 300
    write(ottla, "t", sizes, codec=codec)
    place = TopicPartition("t", 0)
    with byte_limit(ottla, 100_000) as limit:
        found = [batch[place] for batch in batches(limit, {place: sizes})]
    assert [size for batch in found for size in batch] == sizes
    assert all(sum(batch) <= 100_000 for batch in found if len(batch) > 1)
    assert [200_000] in found  # it goes alone
    assert len(found) <= sum(size + OVERHEAD_BYTES for size in sizes) // 100_000 + 4  # they are as large as they may be


@pytest.mark.ottla(topics={"t": 3, "u": 1})
def test_all_partitions_have_one_limit_and_none_waits_for_ever(ottla: LocalBroker) -> None:
    sizes = {TopicPartition("t", index): [30_000] * 8 for index in range(3)} | {TopicPartition("u", 0): [10] * 5}
    for place, those in sizes.items():
        write(ottla, place.topic, those, place.partition)
    with byte_limit(ottla, 20_000) as limit:  # no two of the large ones
        found = batches(limit, sizes)
        assert all(sum(map(sum, batch.values())) <= 30_000 for batch in found)
        for place, those in sizes.items():
            assert any(batch[place] for batch in found[:4]), place
            assert [size for batch in found for size in batch[place]] == those
    with byte_limit(ottla, 1 << 30) as limit:
        assert batches(limit, sizes) == [sizes]
        assert limit.limited(dict.fromkeys(sizes, 5), dict.fromkeys(sizes, 5)) == dict.fromkeys(sizes, 5)


@pytest.mark.ottla(topics={"t": 1})
def test_what_nobody_sees_has_no_bytes(ottla: LocalBroker) -> None:
    place = TopicPartition("t", 0)
    with Producer(ottla.bootstrap, transactional_id="x") as producer:
        for is_aborted in (True, False):
            transaction = producer.transaction()
            transaction.__enter__()
            producer.send_many("t", [NewRecord(bytes(10_000))] * 5)
            error = ZeroDivisionError() if is_aborted else None
            transaction.__exit__(type(error) if error else None, error, None)
    with byte_limit(ottla, 60_000) as limit:
        assert limit.limited({place: 0}, {place: 12}) == {place: 12}
        assert limit.limited({place: 7}, {place: 12}) == {place: 12}
    with byte_limit(ottla, 25_000) as limit:
        assert limit.limited({place: 0}, {place: 12}) == {place: 8}
        assert limit.limited({place: 8}, {place: 9}) == {place: 9}


@pytest.mark.ottla(topics={"t": 2})
def test_what_is_lost_is_passed_over_and_left_to_the_tasks(ottla: LocalBroker) -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    for place in (first, second):
        write(ottla, "t", [10_000] * 10, place.partition)
    with byte_limit(ottla, 45_000) as limit:
        with Admin(ottla.bootstrap) as admin:
            admin.delete_records({first: 6})
        assert limit.limited({first: 0}, {first: 10}) == {first: 10}
        assert limit.limited({first: 0}, {first: 4}) == {first: 4}
        assert limit.limited({first: 60}, {first: 90}) == {first: 61}  # its end is lost, and not all is read for it
        missing = TopicPartition("missing", 0)
        assert limit.limited({missing: 0}, {missing: 7}) == {missing: 7}
        assert limit.limited({second: 2}, {second: 10}) == {second: 6}


@pytest.mark.ottla(topics={"t": 2})
def test_a_stream_is_limited_by_records_and_by_bytes(ottla: LocalBroker) -> None:
    for index in range(2):
        write(ottla, "t", [1000] * 10 + [40] * 40, index)
    for given, least, most in (({}, 1, 5), ({"maxOffsetsPerTrigger": 3}, 3, 3)):
        with stream(ottla, subscribe="t", maxBytesPerTrigger=5100, **given) as reader:
            reader.prepareForTriggerAvailableNow()
            start = reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            assert least <= len(values(reader, reader.partitions(start, end))) <= most
            every = reader.latestOffset(start, EVERYTHING)  # Trigger.Once takes all
            assert len(values(reader, reader.partitions(start, every))) == 100
    with pytest.raises(OptionError, match="maxBytesPerTrigger is for streams alone"):
        source_options(options(ottla, subscribe="t", maxBytesPerTrigger=1), is_stream=False)
    with pytest.raises(OptionError, match="maxBytesPerTrigger is a whole number of at least 1"):
        source_options(options(ottla, subscribe="t", maxBytesPerTrigger=0), is_stream=True)


@pytest.mark.ottla(topics={"t": 1})
def test_records_that_do_not_come_are_told(ottla: LocalBroker) -> None:
    place = TopicPartition("t", 0)
    with (
        byte_limit(ottla, 1000, patience_ms=500) as limit,
        pytest.raises(TimeoutError, match="t-0: nothing came behind offset 0"),
    ):
        limit.limited({place: 0}, {place: 3})  # there is nothing


@pytest.mark.ottla(topics={"t": 1})
def test_it_goes_to_the_workers_without_its_connections(ottla: LocalBroker) -> None:
    write(ottla, "t", [1000] * 3)
    place = TopicPartition("t", 0)
    with byte_limit(ottla, 2500) as limit:
        assert limit.limited({place: 0}, {place: 3}) == {place: 2}
        copy = pickle.loads(pickle.dumps(limit))
    assert copy.limited({place: 1}, {place: 3}) == {place: 3}
    copy.close()
