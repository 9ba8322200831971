"""A table made anew from its topic alone, whole or as of a time, and compared with what its topic says."""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client import Admin, NewRecord, Producer, TopicPartition
from ottla.pipelines import Pipeline, Table, read_arrow
from ottla.pipelines.tables import rebuild as rebuild_module
from ottla.pipelines.tables.applier import Applier, Outcome
from ottla.pipelines.tables.layout import Layout, TableRefused
from ottla.pipelines.tables.rebuild import rebuild
from ottla.pipelines.tables.runner import run_pipeline
from ottla.pipelines.tables.status import status
from ottla.pipelines.tables.table import ChangeTable
from ottla.pipelines.tables.topic_ends import TopicChanged, spans
from ottla.pipelines.tables.verify import verify_tables
from ottla.testing import LocalBroker
from tests.pipelines.tables.model import Change, current, random_changes, rows_of, versions
from tests.pipelines.tables.test_apply import event_of, send
from tests.pipelines.tables.test_table import rows_in, versions_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKETS = 3
TOPIC = "changes"


def pipeline_of(broker: LocalBroker, folder: Path, scd_type: int = 1) -> Pipeline:
    table = Table(TOPIC, str(folder / "t"), ("id",), stored_as_scd_type=scd_type, buckets=BUCKETS)
    return Pipeline(broker.bootstrap, (table,))


@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.ottla(topics={TOPIC: 2})
def test_a_table_is_made_anew_from_its_topic(
    scd_type: int, spark: SparkSession, ottla: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of a wrong one, and beside it as of a time. It goes on from there as if it had always been."""
    monkeypatch.setattr(rebuild_module, "CHUNK_OFFSETS", 40)  # more than one batch
    changes = random_changes(random.Random(3), 120, truncates=0.01)
    send(ottla, TOPIC, changes)
    pipeline = pipeline_of(ottla, tmp_path, scd_type)
    [table] = pipeline.tables
    wrong = ChangeTable(table.target, Layout(("id",), scd_type, BUCKETS))
    wrong.create({"id": "bigint", "value": "string", "note": "string"})
    wrong.append_rows(rows_of([Change(1, 10**6, "wrong"), Change(77, 5, "wrong")], BUCKETS), {(TOPIC, 0): 7})
    wrong.fold()

    rebuild(spark, pipeline, table, str(tmp_path / "past"), as_of_ms=60)
    expected = [change for change in changes if change.position <= 60]
    if scd_type == 1:
        assert rows_in(tmp_path / "past") == current(expected)
        assert not verify_tables(str(tmp_path / "past"), table.target).is_equal
    else:
        assert versions_in(tmp_path / "past") == versions(expected)
    with pytest.raises(TableRefused, match="there is a table at"):
        rebuild(spark, pipeline, table, str(tmp_path / "past"))

    rebuild(spark, pipeline, table)
    changes += [Change(1, 10**7, "more"), Change(2, 10**7 + 1, None)]
    send(ottla, TOPIC, changes[-2:])
    run_pipeline(spark, pipeline, is_once=True)
    if scd_type == 2:
        assert versions_in(tmp_path / "t") == versions(changes)
    else:
        assert rows_in(tmp_path / "t") == current(changes)
        rebuild(spark, pipeline, table, str(tmp_path / "expected"))
        assert verify_tables(str(tmp_path / "expected"), table.target).is_equal


@pytest.mark.ottla(topics={TOPIC: 2})
def test_batches_are_no_larger_than_memory_holds_whatever_messages_are_large(
    engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the pipeline, of a rebuild, and so of a comparison with the topic. By their number they would be one."""
    changes = [Change(key, key, "s") for key in range(200)]
    changes += [Change(key, 1000 + key, "x" * 10_000) for key in range(20)] + [Change(0, 2000, "y" * 90_000)]
    send(ottla, TOPIC, changes)
    counts: list[int] = []
    apply = Applier.apply

    def counted(self: Applier, *given: Any) -> Outcome:
        outcome = apply(self, *given)
        counts.append(outcome.changes)
        return outcome

    monkeypatch.setattr(Applier, "apply", lambda self, frame, read_through=None: counted(self, frame, read_through))
    table = Table(TOPIC, str(tmp_path / "t"), ("id",), buckets=BUCKETS)
    pipeline = Pipeline(ottla.bootstrap, (table,), max_bytes_per_trigger=130_000, engine=engine)
    run_pipeline(spark, pipeline, is_once=True)
    assert rows_in(tmp_path / "t") == current(changes)
    assert 3 <= len(counts) <= 4
    counts.clear()
    rebuild(spark, replace(pipeline, engine="deltalake"), table, str(tmp_path / "expected"))
    assert 3 <= len(counts) <= 4
    assert verify_tables(str(tmp_path / "expected"), table.target).is_equal


@pytest.mark.ottla(topics={TOPIC: 2})
def test_of_a_topic_that_was_created_again_the_table_is_made_anew_on_purpose(
    spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    """The offsets of the old topic count no more, not even of partitions that the new one gets later."""
    pipeline = pipeline_of(ottla, tmp_path)
    send(ottla, TOPIC, [Change(key, 1, "old") for key in range(20)])
    run_pipeline(spark, pipeline, is_once=True)
    with Admin(ottla.bootstrap) as admin:
        admin.delete_topics([TOPIC])
        ottla.topic(TOPIC, partitions=1)
        changes = [Change(key, 1, "new") for key in range(50)]
        send(ottla, TOPIC, changes)
        with pytest.raises(TopicChanged, match="changes was deleted and created again"):
            run_pipeline(spark, pipeline, is_once=True)
        rebuild(spark, pipeline, pipeline.tables[0])
        admin.expand_topics({TOPIC: 2})
    changes += [Change(key, 2, "newer") for key in range(10)]
    send(ottla, TOPIC, changes[-10:])
    run_pipeline(spark, pipeline, is_once=True)
    assert rows_in(tmp_path / "t") == current(changes)


@pytest.mark.ottla(topics={TOPIC: 1})
def test_as_of_a_time_the_time_of_the_message_counts_where_the_event_has_none(
    spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    now_ms = time.time_ns() // 1_000_000
    with Producer(ottla.bootstrap) as producer:
        producer.send_many(
            TOPIC,
            [
                NewRecord(b'{"op": "c", "after": {"id": %d}, "position": 1}' % key, timestamp_ms=now_ms + 1000 * key)
                for key in range(4)
            ],
        )
        late = b'{"op": "c", "after": {"id": 4}, "position": 1, "commit_time": "tomorrow"}'
        producer.send_many(TOPIC, [NewRecord(late, timestamp_ms=now_ms + 4000)])
    # A transform may make rows without messages of them; and what only a stream knows is not asked of a batch.
    table = replace(
        pipeline_of(ottla, tmp_path).tables[0],
        transform=lambda frame: frame.selectExpr("get_json_object(string(value), '$.after.id') AS id", "offset AS seq"),
        sequence_by="seq",
    )
    pipeline = Pipeline(ottla.bootstrap, (table,), options={"maxOffsetsPerTrigger": "7"})
    rebuild(spark, pipeline, table, str(tmp_path / "past"), as_of_ms=now_ms + 1500)
    assert sorted(read_arrow(str(tmp_path / "past"))["id"].to_pylist()) == ["0", "1"]
    pipeline = pipeline_of(ottla, tmp_path)
    rebuild(spark, pipeline, pipeline.tables[0], str(tmp_path / "same"), as_of_ms=now_ms + 1500)
    assert sorted(read_arrow(str(tmp_path / "same"))["id"].to_pylist()) == [0, 1]


@pytest.mark.ottla(topics={TOPIC: 1})
def test_what_transactions_leave_behind_is_no_lag_and_no_loss(
    spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    """A marker of a commit, aborted records, and records of a transaction that is still open."""
    pipeline = pipeline_of(ottla, tmp_path)
    [table] = pipeline.tables
    with Producer(ottla.bootstrap, transactional_id="t") as producer:
        with producer.transaction():
            producer.send_many(TOPIC, [event_of(Change(1, 1, "a")), event_of(Change(2, 2, "b"))])
        with contextlib.suppress(ZeroDivisionError), producer.transaction():
            producer.send_many(TOPIC, [event_of(Change(1, 3, "aborted"))])
            raise ZeroDivisionError
        run_pipeline(spark, pipeline, is_once=True)
        assert status(pipeline, table).lag_records == 0
        with Admin(ottla.bootstrap) as admin:  # the table has had all of it, so nothing is lost
            admin.delete_records({TopicPartition(TOPIC, 0): spans(ottla.bootstrap, TOPIC)[0].end})
        with producer.transaction():
            producer.send_many(TOPIC, [event_of(Change(2, 4, "c"))])
            run_pipeline(spark, pipeline, is_once=True)
            assert rows_in(tmp_path / "t") == current([Change(1, 1, "a"), Change(2, 2, "b")])
            assert status(pipeline, table).lag_records == 0
            assert rebuild(spark, pipeline, table, str(tmp_path / "early")) == 0
        run_pipeline(spark, pipeline, is_once=True)
    assert rows_in(tmp_path / "t") == current([Change(1, 1, "a"), Change(2, 4, "c")])
    assert status(pipeline, table).lag_records == 0
