"""Keys go where Kafka's own producers put them; the rest goes round."""

import itertools
import warnings
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.errors import InvalidRecord, ServerError
from ottla.client.metadata import Partition, Topic
from ottla.client.routing import NewRecord, Router, murmur2, partition_of_key

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, as it loads its schemas
    from kafka.partitioner.default import murmur2 as murmur2_of_kafka_python


# Answers of org.apache.kafka.common.utils.Utils.murmur2, which are signed.
@pytest.mark.parametrize(
    ("key", "hashed"),
    [
        (b"", 275646681),
        (b"21", -973932308),
        (b"abc", 479470107),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_the_hash_is_kafkas(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFF_FFFF


@given(st.binary())
def test_the_hash_is_that_of_another_client(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_kafka_python(key) & 0xFFFF_FFFF


@given(st.binary(), st.integers(1, 1000))
def test_a_partition_is_one_that_there_is(key: bytes, partition_count: int) -> None:
    assert 0 <= partition_of_key(key, partition_count) < partition_count


def topic(*leaders: int) -> Topic:
    partitions = (Partition(index, leader, 0, (1,), (1,), ()) for index, leader in enumerate(leaders))
    return Topic("orders", bytes(16), False, tuple(partitions))


def test_the_partition_that_is_given_comes_first_then_the_key() -> None:
    router = Router()
    assert router.route(topic(1, 1, 1), NewRecord(b"", key=b"21", partition=2)) == 2
    assert router.route(topic(1, 1, 1), NewRecord(b"", key=b"21")) == partition_of_key(b"21", 3)
    assert router.route(topic(-1, -1, -1), NewRecord(b"", key=b"21")) == partition_of_key(b"21", 3)


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_out_of_range_is_refused(partition: int) -> None:
    with pytest.raises(InvalidRecord, match=f"topic orders has no partition {partition}: it has 3") as raised:
        Router().route(topic(1, 1, 1), NewRecord(b"", partition=partition))
    assert (raised.value.topic, raised.value.partition, raised.value.retriable) == ("orders", partition, False)


def test_without_a_key_it_goes_round_over_those_that_have_a_leader() -> None:
    router = Router()
    known = topic(1, -1, 2, 1)
    turns = [router.route(known, NewRecord(b"")) for _ in range(30)]
    assert Counter(turns) == {0: 10, 2: 10, 3: 10}
    assert all(first != second for first, second in itertools.pairwise(turns))
    assert {Router(seed).route(topic(1, 1, 1), NewRecord(b"")) for seed in range(50)} == {0, 1, 2}


def test_it_goes_on_where_it_was_when_the_topic_changes() -> None:
    router = Router()
    first = router.route(topic(1, 1, 1), NewRecord(b""))
    assert router.route(topic(1, 1, 1), NewRecord(b"")) == (first + 1) % 3
    assert {router.route(topic(1, -1, -1), NewRecord(b"")) for _ in range(3)} == {0}


def test_no_partition_has_a_leader() -> None:
    with pytest.raises(ServerError, match="no partition has a leader") as raised:
        Router().route(topic(-1, -1), NewRecord(b""))
    assert raised.value.retriable
