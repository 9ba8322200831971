"""What a pipeline does between batches and on a schedule: folds, tombstones, files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from ottla.pipelines import Pipeline, Table
from ottla.pipelines.tables import applier as applier_module
from ottla.pipelines.tables import runner
from ottla.pipelines.tables.local_engine import LocalEngine
from ottla.pipelines.tables.runner import PipelineFailed, TableRun, messages_after
from ottla.pipelines.tables.table import WriterFenced
from ottla.testing import LocalBroker
from tests.pipelines.tables.model import Change, rows_of
from tests.pipelines.tables.test_table import COLUMNS, rows_in

BUCKETS = 3
NEVER = 10_000.0


class House:
    """A table of a pipeline without its stream: nothing comes."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.path = folder / "t"
        self.said: list[str] = []
        given = {"fold_minutes": NEVER, "fold_idle_seconds": NEVER, "clean_minutes": NEVER} | settings
        self.pipeline = Pipeline("127.0.0.1:1", (Table("changes", str(self.path), ("id",), buckets=BUCKETS),), **given)
        no_session: Any = None
        self.run = TableRun(no_session, self.pipeline, self.pipeline.tables[0], self.said.append)
        self.engine.create(COLUMNS)

    @property
    def engine(self) -> LocalEngine:
        assert isinstance(self.run.applier.engine, LocalEngine)
        return self.run.applier.engine

    def append(self, *changes: Change) -> None:
        self.engine.append_rows(rows_of(list(changes), BUCKETS), {("changes", 0): changes[-1].position})

    def keep_until(self, is_so: Callable[[], bool]) -> None:
        until = time.monotonic() + 60
        while not is_so():
            assert time.monotonic() < until
            self.run.keep_house()

    def plain(self) -> list[int]:
        return sorted(DeltaTable(str(self.path)).to_pyarrow_dataset().to_table()["id"].to_pylist())

    def files(self) -> list[Path]:
        folders = (self.path, Path(f"{self.path}__changes"))
        return [file for folder in folders for file in folder.glob("_*=*/*.parquet")]


@pytest.mark.parametrize("setting", [{"fold_idle_seconds": 0.1}, {"fold_minutes": 0.001}])
def test_changes_are_folded_when_nothing_comes_and_after_a_time(setting: dict[str, float], tmp_path: Path) -> None:
    house = House(tmp_path, **setting)
    house.append(Change(1, 1, "a"), Change(2, 2, "b"), Change(1, 3, None))
    assert house.plain() == []
    house.keep_until(lambda: house.engine.open_rows() == 0)
    assert house.plain() == [2]
    house.append(Change(5, 9, "c"))
    house.keep_until(lambda: house.engine.open_rows() == 0)
    assert house.plain() == [2, 5]


def test_nothing_is_folded_before_it_is_time(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.append(Change(1, 1, "a"))
    for _ in range(5):
        house.run.keep_house()
    assert house.plain() == []
    assert house.engine.open_rows() == 1


def test_a_batch_that_is_applied_is_not_disturbed(tmp_path: Path) -> None:
    house = House(tmp_path, fold_idle_seconds=1e-9)
    house.append(Change(1, 1, "a"))
    with house.run.applier._lock:
        house.run.keep_house()
    assert house.plain() == []
    house.keep_until(lambda: house.plain() == [1])


def test_tombstones_and_files_go_on_a_schedule(tmp_path: Path) -> None:
    house = House(tmp_path, fold_idle_seconds=1e-9, clean_minutes=1e-9, retention_hours=0, tombstone_hours=0)
    for position in range(1, 7):
        house.append(Change(2, 10 * position, "b"), Change(1, 10 * position + 1, None))
        house.keep_until(lambda: house.engine.open_rows() == 0)
    changes = f"{house.path}__changes"
    house.keep_until(lambda: DeltaTable(changes).to_pyarrow_dataset().to_table().num_rows == 0)
    house.keep_until(lambda: len(house.files()) == 1)
    assert rows_in(house.path) == {2: ("b", "")}
    kept = House(tmp_path / "kept", fold_idle_seconds=1e-9, clean_minutes=1e-9, tombstone_hours=-1)
    kept.append(Change(1, 1, None))
    for _ in range(5):
        kept.run.keep_house()
    assert DeltaTable(f"{kept.path}__changes").to_pyarrow_dataset().to_table().num_rows == 1


def test_what_fails_is_told_and_tried_again_and_a_fenced_writer_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tmp_path, fold_idle_seconds=1e-9)
    house.append(Change(1, 1, "a"))

    def fail(error: Exception) -> None:
        def step(engine: LocalEngine) -> bool:
            raise error

        monkeypatch.setattr(applier_module.Applier, "_fold_for", lambda *_, **__: step(house.engine))

    fail(CommitFailedError("the disk is full"))
    house.run.keep_house()
    assert house.said == ["t: the disk is full; again in 0.5 s"]
    fail(WriterFenced("another writer has taken over"))
    with pytest.raises(PipelineFailed, match="t: another writer has taken over"):
        house.keep_until(lambda: False)
    monkeypatch.undo()
    house.keep_until(lambda: house.plain() == [1])


def test_a_store_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name node that starts again, a mount that comes back: the table is looked at as soon as it can be."""
    house = House(tmp_path, fold_idle_seconds=1e-9)
    house.append(Change(1, 1, "a"))

    def away(*_: object, **__: object) -> None:
        raise DeltaError("nobody answers")

    monkeypatch.setattr(applier_module.Applier, "_fold_for", away)
    monkeypatch.setattr(runner, "Applier", away)
    house.keep_until(lambda: len(house.said) == 2)
    assert house.said == ["t: nobody answers; again in 0.5 s", "t: nobody answers; again in 1 s"]
    monkeypatch.undo()
    house.keep_until(lambda: house.plain() == [1])


class Reader:
    """In the place of Spark's: what it is asked for."""

    def __init__(self) -> None:
        self.asked: dict[str, str] = {}
        self.readStream = self

    def format(self, name: str) -> Reader:
        return self

    def option(self, name: str, value: str) -> Reader:
        return self.options(**{name: value})

    def options(self, **given: str) -> Reader:
        self.asked |= given
        return self

    def load(self) -> Reader:
        return self


@pytest.mark.ottla(topics={"changes": 1})
def test_a_batch_is_no_larger_than_a_driver_holds_whatever_a_topic_has(ottla: LocalBroker, tmp_path: Path) -> None:
    house = House(tmp_path)
    cases: list[tuple[dict[str, Any], str]] = [({}, "500000"), ({"options": {"maxOffsetsPerTrigger": "7"}}, "7")]
    for given, most in cases:
        pipeline = Pipeline(ottla.bootstrap, house.pipeline.tables, **given)
        spark: Any = Reader()
        messages_after(spark, pipeline, pipeline.tables[0], house.run.applier)
        assert spark.asked["maxOffsetsPerTrigger"] == most
        assert spark.asked["maxBytesPerTrigger"] == str(64 << 20)
    spark = Reader()
    pipeline = Pipeline(ottla.bootstrap, house.pipeline.tables, format="kafka")
    messages_after(spark, pipeline, pipeline.tables[0], house.run.applier)
    assert "maxBytesPerTrigger" not in spark.asked
