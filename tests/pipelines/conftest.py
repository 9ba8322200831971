"""One Spark session for all tests here: it takes ten seconds to start. Without Java they are skipped."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.pipelines.java import JavaMissing
from ottla.pipelines.session import SparkMissing, spark_session
from ottla.pipelines.tables.delta_log import CATALOG, EXTENSION
from tests.pipelines.cluster import PATIENCE, SparkCluster
from tests.pipelines.jars import JarsUnavailable, delta_jars, kafka_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
APART = ("test_cluster.py", "test_connect.py")
CONFIGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "1g",
    "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
    "spark.sql.streaming.noDataProgressEventInterval": "1h",
    # To compile what runs over a handful of rows takes longer than to interpret it.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.snapshotPartitions": "1",
    # It lives for minutes: here the better compiler pays (248 s of CPU, where the light one takes 299).
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4",
    **PATIENCE,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all tests on the session, so that it is started once; another those on a server or a cluster.

    Any worker runs the rest. Spark's own warnings are not ours.
    """
    for item in items:
        if item.path.is_relative_to(HERE):
            if item.path.name in APART:
                item.add_marker(pytest.mark.xdist_group("spark processes"))
            elif "spark" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.xdist_group("spark"))
            for module in ("pyspark", "py4j", "distutils"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::Warning:{module}"))


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """A standalone master and two workers. A test that kills a worker adds another."""
    try:
        cluster = SparkCluster(tmp_path_factory.mktemp("spark-cluster"))
        with cluster:
            yield cluster
    except JavaMissing as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """A session on two threads, the same for all tests of the run: each uses topics and folders of its own."""
    folder = tmp_path_factory.mktemp("spark")
    configs = {**CONFIGS, "spark.sql.warehouse.dir": str(folder / "warehouse"), "spark.local.dir": str(folder)}
    with contextlib.suppress(JarsUnavailable):  # who needs them asks a fixture below
        configs["spark.jars"] = kafka_jars()
        configs["spark.jars"] += "," + delta_jars()
        configs |= {"spark.sql.extensions": EXTENSION, "spark.sql.catalog.spark_catalog": CATALOG}
    try:
        session = spark_session("local[2]", name="ottla-tests", configs=configs)
    except (JavaMissing, SparkMissing) as reason:
        pytest.skip(str(reason))
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka_format(spark: "SparkSession") -> str:
    """The format of Spark's own Kafka source and sink, where Maven has brought it."""
    try:
        kafka_jars()
    except JarsUnavailable as reason:
        pytest.skip(str(reason))
    return "kafka"


@pytest.fixture(params=["deltalake", "delta-spark"])
def engine(request: pytest.FixtureRequest, spark: "SparkSession") -> str:
    """What keeps a table: each of the two, the second where Maven has brought it."""
    if request.param == "delta-spark":
        try:
            delta_jars()
        except JarsUnavailable as reason:
            pytest.skip(str(reason))
    return str(request.param)
