"""Keys go where Kafka's own producers put them; the rest goes round."""

import itertools
import threading
from collections import Counter

import pytest

from ottla.client.errors import InvalidRecord, ServerError
from ottla.client.network.metadata import Partition, Topic
from ottla.client.producer.chunk import Chunk
from ottla.client.producer.routing import NewRecord, Router
from ottla.records.key_hash import partitions_of_keys


def topic(*leaders: int) -> Topic:
    partitions = (Partition(index, leader, 0, (1,), (1,), ()) for index, leader in enumerate(leaders))
    return Topic("orders", bytes(16), False, tuple(partitions))


def route(router: Router, known: Topic, *records: NewRecord) -> list[int]:
    """The partitions of the records, in their order."""
    chunk = Chunk(known.name, threading.Lock(), 0)
    chunk.values = [record.value for record in records]
    if any(record.key is not None for record in records):
        chunk.keys = [record.key for record in records]
    if any(record.partition is not None for record in records):
        chunk.partitions = [record.partition for record in records]
    chunk.filled_bytes = 100 * len(records)
    chunk.close()
    spread, errors = router.spread(known, chunk)
    if errors:
        raise next(iter(errors.values()))
    found = {index: partition for partition, indexes in spread.items() for index in indexes}
    assert sum(map(len, spread.values())) == len(found) == len(records)
    return [found[index] for index in range(len(records))]


def test_the_partition_that_is_given_comes_first_then_the_key() -> None:
    router = Router()
    records = [NewRecord(b"", key=b"21", partition=2), NewRecord(b"", key=b"21"), NewRecord(b"")]
    partitions = route(router, topic(1, 1, 1), *records)
    assert partitions[:2] == [2, partitions_of_keys([b"21"], 3)[0]]
    assert route(router, topic(-1, -1, -1), NewRecord(b"", key=b"21")) == [partitions_of_keys([b"21"], 3)[0]]


@pytest.mark.parametrize("partition", [-1, 3])
def test_a_partition_out_of_range_is_refused(partition: int) -> None:
    with pytest.raises(InvalidRecord, match=f"topic orders has no partition {partition}: it has 3") as raised:
        route(Router(), topic(1, 1, 1), NewRecord(b""), NewRecord(b"", partition=partition))
    assert (raised.value.topic, raised.value.partition, raised.value.is_retriable) == ("orders", partition, False)


@pytest.mark.parametrize("keyed", [(), (NewRecord(b"", key=b"key"),)], ids=["alone", "beside a key"])
@pytest.mark.parametrize("count", [1, 3, 30])
def test_without_a_key_it_goes_round_over_those_that_have_a_leader(count: int, keyed: tuple[NewRecord, ...]) -> None:
    router = Router()
    known = topic(1, -1, 2, 1)
    turns: list[int] = []
    while len(turns) < 30:
        turns += route(router, known, *[NewRecord(b"")] * count, *keyed)[:count]
    assert Counter(turns) == {0: 10, 2: 10, 3: 10}
    assert all(first != second for first, second in itertools.pairwise(turns))
    assert {route(Router(seed), topic(1, 1, 1), NewRecord(b""))[0] for seed in range(50)} == {0, 1, 2}


def test_it_goes_on_where_it_was_when_the_topic_changes() -> None:
    router = Router()
    [first] = route(router, topic(1, 1, 1), NewRecord(b""))
    assert route(router, topic(1, 1, 1), NewRecord(b"")) == [(first + 1) % 3]
    assert set(route(router, topic(1, -1, -1), *[NewRecord(b"")] * 3)) == {0}


def test_sticky_stays_with_a_partition_until_it_has_had_enough() -> None:
    router = Router(sticky_bytes=350)
    known = topic(1, 1, 1)
    turns = [route(router, known, NewRecord(b""), NewRecord(b"")) for _ in range(6)]
    assert all(first == second for first, second in turns)
    assert [turn[0] for turn in turns[:2]] == [turns[0][0]] * 2
    assert len({turn[0] for turn in turns}) == 3


def test_no_partition_has_a_leader() -> None:
    with pytest.raises(ServerError, match="no partition has a leader") as raised:
        route(Router(), topic(-1, -1), NewRecord(b""))
    assert raised.value.is_retriable
