"""What the driver and the tasks of a query do, without Spark around them: ranges, limits and losses."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan
from pyspark.sql.streaming.datasource import ReadAllAvailable

from ottla.client import Admin, Producer, Reader, TopicPartition
from ottla.pipelines.batch_source import BatchReader
from ottla.pipelines.data_loss import DataLoss
from ottla.pipelines.source_options import source_options
from ottla.pipelines.stream_offsets import StreamOffsets
from ottla.pipelines.stream_source import StreamReader
from ottla.records.growth import is_growing
from ottla.testing import LocalBroker
from tests.growing.ledger import wait_until
from tests.pipelines.topics import KEPT, write

EVERYTHING = ReadAllAvailable()


def options(broker: LocalBroker, **given: object) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap, **{name: str(value) for name, value in given.items()}}


@contextmanager
def stream(broker: LocalBroker, **given: object) -> Iterator[StreamReader]:
    chosen = options(broker, **{"startingOffsets": "earliest", **given})
    reader = StreamReader(source_options(chosen, is_stream=True))
    try:
        yield reader
    finally:
        reader.stop()


def values(reader: StreamReader | BatchReader, ranges: list[Any]) -> list[bytes]:
    return sorted(value for one in ranges for batch in reader.read(one) for value in batch.column("value").to_pylist())


def numbered(*numbers: int) -> list[bytes]:
    return sorted(b"v%d" % number for number in numbers)


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ([], {(0, 0, 10), (1, 0, 10)}),
        ([EqualTo(("partition",), 1)], {(1, 0, 10)}),
        ([EqualTo(("topic",), "other")], set()),
        ([In(("topic",), ("pushed", "x")), LessThan(("offset",), 3)], {(0, 0, 3), (1, 0, 3)}),
        ([GreaterThanOrEqual(("offset",), 9), EqualTo(("partition",), 0)], {(0, 9, 10)}),
        # Records are a second apart, and those of a partition two.
        ([GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(15, UTC))], {(0, 8, 10), (1, 7, 10)}),
    ],
)
def test_conditions_reduce_what_is_read(
    filters: list[Filter], expected: set[tuple[int, int, int]], ottla: LocalBroker
) -> None:
    ottla.topic("pushed", partitions=2, config=KEPT)
    write(ottla, "pushed", range(20), is_old=True)
    reader = BatchReader(source_options(options(ottla, subscribe="pushed"), is_stream=False))
    list(reader.pushFilters(filters))
    ranges = reader.partitions()
    assert {(one.partition, one.start, one.end) for one in ranges} == expected
    assert len(values(reader, ranges)) == sum(end - start for _, start, end in expected)


def test_records_outside_of_the_times_are_not_handed_to_spark(ottla: LocalBroker) -> None:
    ottla.topic("times", partitions=1, config=KEPT)
    write(ottla, "times", range(10), partitions=1, is_old=True)
    reader = BatchReader(source_options(options(ottla, subscribe="times"), is_stream=False))
    bounds = [
        GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(3, UTC)),
        LessThan(("timestamp",), datetime.fromtimestamp(5, UTC)),
    ]
    assert list(reader.pushFilters(bounds)) == bounds  # Spark looks at them, too
    assert values(reader, reader.partitions()) == numbered(3, 4, 5)  # to a millisecond: the bound itself is Spark's


def test_a_batch_waits_for_the_least_number_of_records_but_not_longer_than_asked(ottla: LocalBroker) -> None:
    ottla.topic("least", partitions=2)
    write(ottla, "least", range(6))
    with stream(ottla, subscribe="least", minOffsetsPerTrigger=10, maxTriggerDelay="1h") as reader:
        start = reader.initialOffset()
        assert reader.latestOffset(start, EVERYTHING) == start
        write(ottla, "least", range(6, 10))
        end = reader.latestOffset(start, EVERYTHING)
        assert values(reader, reader.partitions(start, end)) == numbered(*range(10))
        write(ottla, "least", [10])
        assert reader.latestOffset(end, EVERYTHING) == end
    with stream(ottla, subscribe="least", minOffsetsPerTrigger=10, maxTriggerDelay="0ms") as reader:
        assert len(reader.partitions(end, reader.latestOffset(end, EVERYTHING))) == 1
    with stream(ottla, subscribe="least", minOffsetsPerTrigger=10, maxTriggerDelay="1h") as reader:
        reader.prepareForTriggerAvailableNow()  # then nothing is waited for
        assert len(reader.partitions(end, reader.latestOffset(end, EVERYTHING))) == 1


def test_a_batch_takes_no_more_than_the_most_and_goes_on_behind_it(ottla: LocalBroker) -> None:
    ottla.topic("most", partitions=2)
    write(ottla, "most", range(10))
    with stream(ottla, subscribe="most", maxOffsetsPerTrigger=4) as reader:
        found, start = [], reader.initialOffset()
        for expected in (4, 4, 2):
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            batch = values(reader, reader.partitions(start, end))
            assert len(batch) == expected
            found += batch
            start = end
        assert sorted(found) == numbered(*range(10))
        assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start


def lose(broker: LocalBroker, topic: str, before: int) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.delete_records({TopicPartition(topic, 0): before})


def test_records_that_went_before_they_were_read_stop_the_query_or_are_passed_over(ottla: LocalBroker) -> None:
    ottla.topic("gone", partitions=1)
    write(ottla, "gone", range(10), partitions=1)
    with stream(ottla, subscribe="gone") as reader:
        start = reader.initialOffset()
        end = reader.latestOffset(start, EVERYTHING)
        ranges = reader.partitions(start, end)
        lose(ottla, "gone", 6)
        with pytest.raises(DataLoss, match=r"offsets 0 to 10 are not all there any more.*set option failOnDataLoss"):
            values(reader, ranges)
    with stream(ottla, subscribe="gone", failOnDataLoss="false") as reader:
        assert values(reader, reader.partitions(start, end)) == numbered(6, 7, 8, 9)
    with pytest.raises(DataLoss, match="gone-0 has the offsets from 6 to 10, not from 2 to 10"):
        BatchReader(
            source_options(options(ottla, subscribe="gone", startingOffsets='{"gone": {"0": 2}}'), is_stream=False)
        ).partitions()
    with pytest.raises(DataLoss, match="gone-0 has the offsets from 6 to 10, not from 11 to 10"):
        BatchReader(
            source_options(options(ottla, subscribe="gone", startingOffsets='{"gone": {"0": 11}}'), is_stream=False)
        ).partitions()


def test_a_partition_that_is_shorter_than_it_was_is_a_loss(ottla: LocalBroker) -> None:
    ottla.topic("shorter", partitions=1)
    write(ottla, "shorter", range(4), partitions=1)
    with stream(ottla, subscribe="shorter") as reader:
        beyond = reader.latestOffset(reader.initialOffset(), EVERYTHING)
        beyond["shorter"]["0"] = 9
        with pytest.raises(DataLoss, match="shorter-0 ends at offset 4, and was read up to 9 before"):
            reader.latestOffset(beyond, EVERYTHING)
    with stream(ottla, subscribe="shorter", failOnDataLoss="false") as reader:
        assert reader.partitions(beyond, reader.latestOffset(beyond, EVERYTHING)) == []


def test_a_topic_that_is_gone_or_another_is_a_loss_also_in_a_task(ottla: LocalBroker) -> None:
    ottla.topic("twice", partitions=1)
    write(ottla, "twice", range(4), partitions=1)
    with stream(ottla, subscribe="twice") as reader:
        start = reader.initialOffset()
        ranges = reader.partitions(start, reader.latestOffset(start, EVERYTHING))
        with Admin(ottla.bootstrap) as admin:
            admin.delete_topics(["twice"])
        with pytest.raises(DataLoss, match="topic twice is not there any more"):
            reader.latestOffset(start, EVERYTHING)
        ottla.topic("twice", partitions=1)
        write(ottla, "twice", range(4), partitions=1)
        with pytest.raises(DataLoss, match="topic twice was deleted and created again"):
            reader.latestOffset(start, EVERYTHING)
        with pytest.raises(DataLoss, match="twice was deleted and created again"):
            values(reader, ranges)


def test_a_loss_is_one_also_where_all_that_is_available_now_is_read(ottla: LocalBroker) -> None:
    for topic in ("all-now-1", "all-now-2"):
        ottla.topic(topic, partitions=1)
        write(ottla, topic, range(4), partitions=1)
    with stream(ottla, subscribePattern="all-now-.*") as reader:
        start = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    with stream(ottla, subscribePattern="all-now-.*") as reader:
        reader.prepareForTriggerAvailableNow()
        write(ottla, "all-now-1", [4], partitions=1)
        start["all-now-1"]["0"] = 5  # it has come since
        assert reader.latestOffset(start, EVERYTHING) == start
        start["all-now-1"]["0"] = 9
        with pytest.raises(DataLoss, match="all-now-1-0 ends at offset 4, and was read up to 9 before"):
            reader.latestOffset(start, EVERYTHING)
    start["all-now-1"]["0"] = 5
    with Admin(ottla.bootstrap) as admin:
        admin.delete_topics(["all-now-2"])
    with stream(ottla, subscribePattern="all-now-.*") as reader:
        reader.prepareForTriggerAvailableNow()
        with pytest.raises(DataLoss, match="all-now-2-0 is not there any more"):
            reader.latestOffset(start, EVERYTHING)


@pytest.mark.parametrize("records", [None, 0, 3, 9])
def test_a_task_that_goes_on_without_its_topic_reads_nothing_of_another(
    records: int | None, ottla: LocalBroker
) -> None:
    """Neither what was before its range nor what has come in its place: the next batch begins with that."""
    ottla.topic("other", partitions=1)
    write(ottla, "other", range(8), partitions=1)
    given = options(ottla, subscribe="other", failOnDataLoss="false", startingOffsets='{"other": {"0": 5}}')
    reader = BatchReader(source_options(given, is_stream=False))
    ranges = reader.partitions()
    with Admin(ottla.bootstrap) as admin:
        admin.delete_topics(["other"])
    if records is not None:
        ottla.topic("other", partitions=1)
        write(ottla, "other", range(10, 10 + records), partitions=1)
    assert values(reader, ranges) == []


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_range_that_its_partition_does_not_have_any_more_is_a_loss(fails: str, ottla: LocalBroker) -> None:
    """As when a leader is elected that lacks the last records: they were there when the batch was planned."""
    ottla.topic("cut", partitions=1)
    write(ottla, "cut", range(8), partitions=1)
    given = options(ottla, **{"subscribe": "cut", "failOnDataLoss": fails, "kafkaConsumer.pollTimeoutMs": 1})
    reader = BatchReader(source_options(given, is_stream=False))
    [whole] = reader.partitions()
    within, beyond = replace(whole, end=11), replace(whole, start=9, end=11)
    if fails == "false":
        assert values(reader, [within]) == numbered(*range(8))
        assert values(reader, [beyond]) == []
        return
    with pytest.raises(DataLoss, match="offsets 0 to 11: the partition ends at offset 8 now"):
        values(reader, [within])
    with pytest.raises(DataLoss, match=r"offsets 9 to 11(: the partition ends at| are not all there any more)"):
        values(reader, [beyond])


def test_who_goes_on_without_a_topic_reads_the_others_and_what_comes_in_its_place(ottla: LocalBroker) -> None:
    """The new one has fewer partitions than the old one had."""
    ottla.topic("lost", partitions=3)
    ottla.topic("kept", partitions=1)
    write(ottla, "lost", range(6), partitions=3)
    with stream(ottla, subscribe="lost,kept", failOnDataLoss="false") as reader, Admin(ottla.bootstrap) as admin:
        start = reader.latestOffset(reader.initialOffset(), EVERYTHING)
        admin.delete_topics(["lost"])
        write(ottla, "kept", range(2), partitions=1)
        end = reader.latestOffset(start, EVERYTHING)
        assert values(reader, reader.partitions(start, end)) == numbered(0, 1)
        ottla.topic("lost", partitions=1)
        write(ottla, "lost", range(7, 9), partitions=1)
        again = reader.latestOffset(end, EVERYTHING)
        assert values(reader, reader.partitions(end, again)) == numbered(7, 8)
        assert reader.latestOffset(again, EVERYTHING) == again


def test_the_groups_offsets_follow_the_batches_and_do_not_stop_the_query(ottla: LocalBroker) -> None:
    ottla.topic("seen", partitions=2)
    write(ottla, "seen", range(10))
    with stream(ottla, **{"subscribe": "seen", "kafka.group.id": "query"}) as reader:
        end = reader.latestOffset(reader.initialOffset(), EVERYTHING)
        assert ottla.lag("query") == 10
        reader.commit(end)
        assert ottla.lag("query") == 0
        write(ottla, "seen", range(10, 14))
        assert ottla.lag("query") == 4
        # A restart publishes where it goes on, for Spark does not commit its last batch again.
        reader.latestOffset(reader.latestOffset(end, EVERYTHING), EVERYTHING)
        assert ottla.lag("query") == 0


@pytest.mark.parametrize(("level", "expected"), [("read_committed", (0, 1)), ("read_uncommitted", (0, 1, 2, 3))])
def test_what_is_aborted_or_not_decided_is_read_only_by_who_asks_for_it(
    level: str, expected: tuple[int, ...], ottla: LocalBroker
) -> None:
    ottla.topic("undecided", partitions=1)
    given = options(ottla, **{"subscribe": "undecided", "kafka.isolation.level": level})
    with Producer(ottla.bootstrap, transactional_id="t") as producer:
        with producer.transaction():
            producer.send_many("undecided", [b"v0", b"v1"])
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send_many("undecided", [b"v2"])
            raise ZeroDivisionError
        with producer.transaction():
            producer.send_many("undecided", [b"v3"])
            reader = BatchReader(source_options(given, is_stream=False))
            assert values(reader, reader.partitions()) == numbered(*expected)


def test_offsets_that_are_missing_in_the_middle_are_a_loss_unless_the_topic_is_compacted(
    ottla: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    poll = Reader.poll_data

    def with_gap(reader: Any) -> list[Any]:
        portions = list(poll(reader))
        for portion in portions:
            portion.gap = (1, 3)
        return portions

    monkeypatch.setattr(Reader, "poll_data", with_gap)
    for topic, policy in (("plain", "delete"), ("compacted", "compact")):
        ottla.topic(topic, partitions=1, config={"cleanup.policy": policy})
        write(ottla, topic, range(4), partitions=1)
        for fails in ("true", "false"):
            given = options(ottla, subscribe=topic, failOnDataLoss=fails)
            reader = BatchReader(source_options(given, is_stream=False))
            if (topic, fails) == ("plain", "true"):
                with pytest.raises(DataLoss, match="topic plain, partition 0 has no offsets 1 to 2"):
                    values(reader, reader.partitions())
            else:
                assert values(reader, reader.partitions()) == numbered(0, 1, 2, 3)


def test_a_new_partition_waits_also_where_the_first_records_of_all_are_deleted(ottla: LocalBroker) -> None:
    keys = [b"key-%d" % number for number in range(16)]
    ottla.topic("shortened", partitions=1)
    parent, new = TopicPartition("shortened", 0), TopicPartition("shortened", 1)
    with Admin(ottla.bootstrap) as admin:
        for is_grown in (False, True):
            with Producer(ottla.bootstrap) as producer:
                for key in keys:
                    producer.send("shortened", b"v", key=key)
            if not is_grown:
                admin.expand_in_order({"shortened": 2}, quiet_ms=0)
                wait_until(lambda: not is_growing(admin.describe_growths(["shortened"])["shortened"]), "it has grown")
        admin.delete_records({parent: 1, new: 1})
    with stream(ottla, subscribe="shortened") as reader:
        start = reader.initialOffset()
        ends = []
        for _ in range(3):
            start = reader.latestOffset(start, EVERYTHING)
            ends.append(StreamOffsets.of_json(start).offsets)
    assert ends[0][parent] > len(keys)
    assert [end[new] for end in ends] == [1, ends[1][new], ends[1][new]]
    assert ends[1][new] > 1
