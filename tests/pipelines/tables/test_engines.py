"""The two engines are equal: each goes on where the other has stopped, and a late writer is fenced whichever it is."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from ottla.pipelines import apply_changes, read_arrow, read_table
from ottla.pipelines.tables import read as read_module
from ottla.pipelines.tables import spark_engine
from ottla.pipelines.tables.applier import Engine, engine_of
from ottla.pipelines.tables.decode import OUTCOME_FIELDS
from ottla.pipelines.tables.delta_log import DeltaLog
from ottla.pipelines.tables.layout import TableRefused
from ottla.pipelines.tables.rules import Rules, RulesRefused
from ottla.pipelines.tables.table import ChangeTable, WriterFenced
from tests.pipelines.jars import JarsUnavailable, delta_jars
from tests.pipelines.tables.model import Change, current, disturbed, random_changes, rows_of, versions
from tests.pipelines.tables.test_table import BUCKETS, COLUMNS, LAYOUT, rows_in, versions_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES = ("deltalake", "delta-spark")


@pytest.fixture(autouse=True)
def delta_spark(spark: SparkSession) -> None:
    try:
        delta_jars()
    except JarsUnavailable as reason:
        pytest.skip(str(reason))


def append(engine: Engine, spark: SparkSession, changes: list[Change], offset: int | None) -> int:
    """One batch as it comes from a topic, with the last offset of it."""
    rows, count = rows_of(changes, BUCKETS), len(changes)
    places = {
        "_topic": pa.array([None if offset is None else "t"] * count, pa.string()),
        "_partition": pa.array([0] * count, pa.int32()),
        "_offset": pa.array([offset] * count, pa.int64()),
    }
    for name, column in places.items():
        rows = rows.append_column(name, column)
    for field in OUTCOME_FIELDS:
        rows = rows.append_column(field, pa.nulls(count, field.type))
    return engine.append(engine.judge(spark.createDataFrame(rows)))


@pytest.mark.parametrize("kind", ["rows", "some columns"])
def test_each_goes_on_where_the_other_has_stopped(kind: str, spark: SparkSession, tmp_path: Path) -> None:
    """Batches out of order and with repeats; folds that are cut between steps, and the engine changes there."""
    chance = random.Random(4)
    options: dict[str, Any] = {} if kind == "rows" else {"stored_as_scd_type": 2}
    if kind == "some columns":
        options["track_history_column_list"] = ("value",)

    def opened(engine: str) -> Engine:
        return engine_of(str(tmp_path / "t"), Rules(("id",), buckets=BUCKETS, engine=engine, **options), spark)

    engine = opened("delta-spark")
    engine.create(COLUMNS)
    applied: list[Change] = []
    for number, batch in enumerate(disturbed(chance, random_changes(chance, 60), 24)):
        append(engine, spark, batch, number)
        applied += batch
        for _ in range(chance.randrange(3)):
            chance.choice([engine.begin_fold, engine.fold_step])()
        engine = opened(ENGINES[number % 2])
        if kind == "rows":
            assert rows_in(tmp_path / "t") == current(applied)
        else:
            assert versions_in(tmp_path / "t") == versions(applied, tracks_note=False)
    by_spark = read_table(spark, str(tmp_path / "t"), engine="delta-spark", is_plain=False).toArrow().to_pylist()
    assert sorted(map(str, by_spark)) == sorted(map(str, read_arrow(str(tmp_path / "t")).to_pylist()))
    engine = opened("delta-spark")
    assert append(engine, spark, batch, number) == 0
    while engine.begin_fold():
        while engine.fold_step():
            pass
    engine.clean(0)
    assert engine.open_rows() == 0
    assert engine.base_rows() == len(current(applied) if kind == "rows" else versions(applied, tracks_note=False))
    assert opened("deltalake").offsets([("t", 0)]) == engine.offsets([("t", 0)]) == {("t", 0): number}


def test_a_truncate_is_folded_and_goes_with_the_tombstones(spark: SparkSession, tmp_path: Path) -> None:
    engine = engine_of(str(tmp_path / "t"), Rules(("id",), buckets=BUCKETS, engine="delta-spark"), spark)
    engine.create(COLUMNS)
    changes = [Change(1, 1, "a"), Change(2, 2, "b"), Change(None, 5, None), Change(3, 6, "c"), Change(1, 3, "late")]
    append(engine, spark, changes[:2], 0)
    assert engine.begin_fold()
    while engine.fold_step():
        pass
    append(engine, spark, changes[2:], 1)
    assert rows_in(tmp_path / "t") == current(changes)
    assert engine.begin_fold()
    while engine.fold_step():
        pass
    assert engine.base_rows() == 1
    append(engine, spark, [Change(4, 4, "later still")], 2)
    assert rows_in(tmp_path / "t") == current(changes)
    assert engine.expire_tombstones(0) == 0  # now it is known since when they are there
    assert engine.expire_tombstones(0) == 1
    assert sorted(rows_in(tmp_path / "t")) == [3, 4]


def test_the_slower_of_two_writers_is_fenced(spark: SparkSession, tmp_path: Path) -> None:
    rules = Rules(("id",), buckets=BUCKETS, engine="delta-spark")
    first = engine_of(str(tmp_path / "t"), rules, spark)
    first.create(COLUMNS)
    old, new = (engine_of(str(tmp_path / "t"), rules, spark) for _ in range(2))
    append(new, spark, [Change(1, 1, "x")], 5)
    with pytest.raises(WriterFenced):
        append(old, spark, [Change(1, 1, "x")], 5)
    old = engine_of(str(tmp_path / "t"), rules, spark)
    assert new.begin_fold()
    with pytest.raises(WriterFenced):  # although it has no offset in common with the other
        append(old, spark, [Change(2, 1, "y")], None)
    assert rows_in(tmp_path / "t") == {1: ("x", "")}


class Crash(BaseException):
    """The driver is gone."""


def crash_after(write: Callable[..., None]) -> Callable[..., None]:
    def written(*arguments: Any, **options: Any) -> None:
        write(*arguments, **options)
        raise Crash

    return written


def test_a_table_is_replaced_whole_by_one_that_was_made_anew(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it is, nobody reads or writes a mixture of both."""
    rules = Rules(("id",), buckets=BUCKETS, engine="delta-spark")
    engine = engine_of(str(tmp_path / "t"), rules, spark)
    engine.create(COLUMNS)
    append(engine, spark, [Change(1, 9, "wrong"), Change(3, 9, "wrong")], 9)
    fresh = ChangeTable(str(tmp_path / "fresh"), LAYOUT)
    fresh.create(COLUMNS)
    fresh.append_rows(rows_of([Change(1, 1, "right"), Change(2, 2, None)], BUCKETS), {("t", 0): 4})
    fresh.fold()
    with monkeypatch.context() as patch:
        patch.setattr(DeltaLog, "overwrite", crash_after(DeltaLog.overwrite))
        with pytest.raises(Crash):
            engine.replace_with(fresh)
        patch.setattr(read_module, "_PAUSE_SECONDS", 0)
        patch.setattr(spark_engine, "_PAUSE_SECONDS", 0)
        for read in (lambda: rows_in(tmp_path / "t"), lambda: spark_engine.frames_at(spark, str(tmp_path / "t"))):
            with pytest.raises(TableRefused, match="was cut"):
                read()
    engine = engine_of(str(tmp_path / "t"), rules, spark)
    with pytest.raises(TableRefused, match="was cut"):
        append(engine, spark, [Change(5, 3, "new")], 10)
    engine.replace_with(fresh)
    assert rows_in(tmp_path / "t") == {1: ("right", "")}
    engine = engine_of(str(tmp_path / "t"), rules, spark)
    assert engine.offsets([("t", 0)]) == {("t", 0): 4}
    append(engine, spark, [Change(2, 1, "late"), Change(5, 3, "new")], 5)
    assert rows_in(tmp_path / "t") == {1: ("right", ""), 5: ("new", "")}


def test_what_it_cannot_run_on_is_refused_in_a_sentence(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RulesRefused, match="engine is one of deltalake, delta-spark"):
        Rules(("id",), engine="spark")
    frame = spark.createDataFrame([(1, 1)], "id long, seq long")
    monkeypatch.setattr("ottla.pipelines.tables.delta_log.EXTENSION", "some.other.Extension")
    with pytest.raises(TableRefused, match=r"spark\.sql\.extensions"):
        apply_changes(str(tmp_path / "t"), frame, ["id"], "seq", engine="delta-spark")
