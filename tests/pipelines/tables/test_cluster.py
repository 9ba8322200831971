"""Tables where many write them: by a cluster of Spark, of which a worker is killed; and on HDFS, with all kills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples.shop_run import Place
from ottla.pipelines.java import JavaMissing
from ottla.pipelines.tables.read import read_arrow
from ottla.pipelines.tables.table import ChangeTable, WriterFenced
from tests.light_java import LIGHT_JAVA
from tests.pipelines.cluster import PATIENCE, SparkCluster
from tests.pipelines.hdfs import Hdfs
from tests.pipelines.jars import JarsUnavailable, delta_jars
from tests.pipelines.tables.kills import storm
from tests.pipelines.tables.model import Change, rows_of
from tests.pipelines.tables.test_table import BUCKETS, COLUMNS, LAYOUT

if TYPE_CHECKING:
    from collections.abc import Iterator

LIGHT = {
    **PATIENCE,
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hdfs]:
    try:
        delta_jars()
        with Hdfs(tmp_path_factory.mktemp("hdfs")) as started:
            yield started
    except (JarsUnavailable, JavaMissing) as reason:
        pytest.skip(str(reason))


def test_a_cluster_loses_a_worker_and_the_tables_equal_their_source(
    spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """`ottla pipeline run --master`; the executors write where delta-spark is to be had, else the driver does."""
    configs = {**LIGHT, **LOOPBACK, "spark.executor.memory": "512m", "spark.executor.extraJavaOptions": LIGHT_JAVA}
    try:
        place = Place(spark_cluster.master, "delta-spark", spark={**configs, "spark.jars": delta_jars()})
    except JarsUnavailable:
        place = Place(spark_cluster.master, spark=configs)

    def kill_worker() -> None:
        spark_cluster.kill_worker(0)
        spark_cluster.add_worker()

    run = storm(tmp_path, ["cluster worker"], rate=50, seed=5, place=place, kills={"cluster worker": kill_worker})
    assert [what for _, what in run.kills] == ["cluster worker"]


def test_tables_on_hdfs_equal_their_source_after_kills_of_everything(hdfs: Hdfs, tmp_path: Path) -> None:
    """Rows and offsets are there and nowhere else: the driver that comes after has nothing but the table."""
    configs = {**LIGHT, "spark.jars": delta_jars()}
    place = Place(engine="delta-spark", lake=f"{hdfs.url}/lake", spark=configs)
    victims = ["driver", "worker", "broker", "shop"]
    run = storm(tmp_path, victims, rate=50, seed=6, place=place)
    assert [what for _, what in run.kills] == victims
    assert not (tmp_path / "lake").exists()


def test_the_engine_of_one_machine_keeps_tables_on_hdfs_too(hdfs: Hdfs) -> None:
    """Without jars: deltalake has a client of its own."""
    path = f"{hdfs.url}/plain/t"
    table = ChangeTable(path, LAYOUT)
    table.create(COLUMNS)
    old = ChangeTable(path, LAYOUT)
    table.append_rows(rows_of([Change(1, 1, "a"), Change(2, 2, "b")], BUCKETS), {("t", 0): 1})
    table.fold()
    with pytest.raises(WriterFenced):
        old.append_rows(rows_of([Change(1, 1, "a")], BUCKETS), {("t", 0): 0})
    table = ChangeTable(path, LAYOUT)
    assert table.offsets([("t", 0)]) == {("t", 0): 1}
    table.append_rows(rows_of([Change(1, 3, None)], BUCKETS), {("t", 0): 2})
    assert [row["id"] for row in read_arrow(path).to_pylist()] == [2]
