"""What each task reads: ranges that are cut, limits that are shared, conditions that are taken over."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as some
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, IsNotNull, LessThanOrEqual, Not

from ottla.client import TopicPartition
from ottla.pipelines.offset_range import OffsetRange, split
from ottla.pipelines.pushed_filters import PushedFilters
from ottla.pipelines.rate_limit import limit_offsets
from ottla.pipelines.stream_offsets import StreamOffsets

SIZES = some.lists(some.integers(0, 1000), min_size=1, max_size=8)


@given(SIZES, some.none() | some.integers(1, 20), some.none() | some.integers(1, 300))
def test_cut_ranges_hold_every_offset_once(sizes: list[int], least: int | None, most: int | None) -> None:
    ranges = [OffsetRange("t", "id", index, 10, 10 + size) for index, size in enumerate(sizes)]
    parts = split(ranges, least, most)
    found = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert found == [(one.partition, offset) for one in ranges for offset in range(one.start, one.end)]
    assert all(part.size for part in parts)
    assert most is None or all(part.size <= most for part in parts)
    assert least is None or len(parts) >= min(least, sum(sizes))


@given(SIZES, some.integers(1, 500))
def test_a_limit_is_shared_by_size_and_nobody_waits_for_ever(sizes: list[int], most: int) -> None:
    starts = {TopicPartition("t", index): 5 for index in range(len(sizes))}
    ends = {TopicPartition("t", index): 5 + size for index, size in enumerate(sizes)}
    rounds = 0
    while starts != ends:
        limited = limit_offsets(starts, ends, most)
        taken = [limited[place] - starts[place] for place in starts]
        assert min(taken) >= 0
        assert all(limited[place] <= ends[place] for place in ends)
        assert sum(taken) == min(most, sum(ends.values()) - sum(starts.values()))
        starts, rounds = limited, rounds + 1
    assert rounds == -(-sum(sizes) // most)


def test_a_partition_that_was_truncated_is_not_given_a_share() -> None:
    places = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limit_offsets(dict(zip(places, (9, 0), strict=True)), dict(zip(places, (5, 90), strict=True)), 10) == {
        places[0]: 5,
        places[1]: 10,
    }


@pytest.mark.parametrize(
    ("filters", "is_taken", "places", "offsets"),
    [
        ([EqualTo(("topic",), "a")], True, {("a", 0), ("a", 1)}, (0, 100)),
        ([In(("topic",), ("a", "c")), EqualTo(("partition",), 1)], True, {("a", 1)}, (0, 100)),
        ([In(("partition",), (1, 7))], True, {("a", 1), ("b", 1)}, (0, 100)),
        ([GreaterThan(("offset",), 9), LessThanOrEqual(("offset",), 20)], True, None, (10, 21)),
        ([EqualTo(("offset",), 200)], True, None, (200, 100)),
        ([EqualTo(("value",), b"x")], False, None, (0, 100)),
        ([IsNotNull(("offset",)), Not(EqualTo(("topic",), "a"))], False, None, (0, 100)),
        ([EqualTo(("headers", "key"), "x")], False, None, (0, 100)),
    ],
)
def test_conditions_that_are_taken_over(
    filters: list[Filter], is_taken: bool, places: set[tuple[str, int]] | None, offsets: tuple[int, int]
) -> None:
    pushed = PushedFilters()
    assert [pushed.take(one) for one in filters] == [is_taken] * len(filters)
    every = {(topic, index) for topic in "ab" for index in (0, 1)}
    assert {place for place in every if pushed.takes(TopicPartition(*place))} == (every if places is None else places)
    assert pushed.narrow(0, 100) == offsets


def test_a_time_at_the_end_of_the_calendar_is_left_to_spark() -> None:
    """Such as one that stands for no time at all: in the zone of the machine it may have no year."""
    filters = PushedFilters()
    assert not filters.take(GreaterThan(("timestamp",), datetime(1, 1, 1)))
    assert not filters.take(LessThanOrEqual(("timestamp",), datetime(9999, 12, 31, 23, 59, 59)))


def test_a_time_is_used_and_left_to_spark_as_well() -> None:
    pushed = PushedFilters()
    exact = datetime(1970, 1, 1, 0, 0, 5, 400, tzinfo=UTC)
    assert not pushed.take(GreaterThan(("timestamp",), exact))
    assert not pushed.take(LessThanOrEqual(("timestamp",), exact.replace(second=9)))
    assert (pushed.least_time_ms, pushed.time_limit_ms) == (5000, 9001)


def test_offsets_of_a_stream_are_json_with_the_ids_of_topics() -> None:
    found: dict[str, dict[str, object]] = {"orders": {"id": "abc", "0": 5, "10": 7}, "old": {"0": 1}}
    offsets = StreamOffsets.of_json(found)
    assert offsets.offsets[TopicPartition("orders", 10)] == 7
    assert offsets.topic_ids == {"orders": "abc"}
    assert offsets.to_json() == found
