"""One Delta table through delta-spark, on any path that Spark can write.

delta-spark's own interface puts one app transaction in a commit, and a commit of ours has one for each partition of a
topic. So `commit` speaks to the transaction below that interface; the names are those of delta-spark 4.4.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from ottla.pipelines.tables.layout import TableRefused
from ottla.pipelines.tables.table import WriterFenced

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NEVER = -1
_FENCED = ("ConcurrentTransactionException",)
_TXN_APP_ID = "spark.databricks.delta.write.txnAppId"
_TXN_VERSION = "spark.databricks.delta.write.txnVersion"
_SNAPSHOT_TASKS = "spark.databricks.delta.snapshotPartitions"
_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def delta_session(spark: SparkSession) -> SparkSession:
    """A session of its own in the same Spark: what is set in it for one statement is seen by no other table."""
    from py4j.java_gateway import JavaPackage

    if not hasattr(spark, "_jvm"):
        raise TableRefused('engine "delta-spark" needs a classic Spark session; this one is of Spark Connect')
    jvm: Any = spark._jvm
    if isinstance(jvm.org.apache.spark.sql.delta.DeltaLog, JavaPackage):
        raise TableRefused(
            'engine "delta-spark" needs the jars of delta-spark in the session: set "spark.jars.packages" to '
            '"io.delta:delta-spark_4.2_2.13:4.4.0", or "spark.jars" to the jars of delta-spark and delta-storage'
        )
    if EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise TableRefused(f'engine "delta-spark" needs a session with "spark.sql.extensions" set to "{EXTENSION}"')
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # Our logs are short, and Delta reads a log in 50 tasks unless it is told.
    session.conf.set(_SNAPSHOT_TASKS, spark.conf.get(_SNAPSHOT_TASKS, "4") or "4")
    # VACUUM lists the folders in as many tasks as this says, 10,000 by itself, however few files there are.
    session.conf.set(_LISTING_TASKS, 4 * session.sparkContext.defaultParallelism)
    return session


class DeltaLog:
    """The table at `path` as of its last `refresh`."""

    def __init__(self, session: SparkSession, path: str) -> None:
        self.session, self.path = session, path
        self.sql_name = f"delta.`{path}`"
        self._jvm: Any = session._jvm
        self._log: Any = None
        self._snapshot: Any = None
        self.transactions: dict[str, int] = {}
        self.refresh()

    def refresh(self) -> None:
        if self._log is None:
            if not self._jvm.io.delta.tables.DeltaTable.isDeltaTable(self.session._jsparkSession, self.path):
                return
            self._log = self._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.session._jsparkSession, self.path)
        none = self._jvm.scala.Option.empty()
        self._snapshot = self._log.update(False, none, none)
        to_java = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava
        self.transactions = {
            str(name): int(version) for name, version in to_java(self._snapshot.transactions()).items()
        }

    @property
    def exists(self) -> bool:
        return self._snapshot is not None

    @property
    def version(self) -> int:
        return int(self._snapshot.version())

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self._snapshot.schema().json()))

    def configuration(self) -> dict[str, str]:
        to_java = self._jvm.scala.jdk.javaapi.CollectionConverters.asJava
        return {str(name): str(value) for name, value in to_java(self._snapshot.metadata().configuration()).items()}

    def transaction_version(self, app_id: str) -> int | None:
        return self.transactions.get(app_id)

    def frame(self) -> DataFrame:
        """The rows of this version."""
        return self.session.read.format("delta").option("versionAsOf", self.version).load(self.path)

    # Writing

    def create(self, schema: StructType, partition: str, configuration: Mapping[str, str]) -> None:
        columns = ", ".join(_column(field) for field in schema.fields)
        properties = ", ".join(f"{_text(name)} = {_text(value)}" for name, value in configuration.items())
        self.session.sql(
            f"CREATE TABLE IF NOT EXISTS {self.sql_name} ({columns}) USING DELTA PARTITIONED BY ({partition}) "
            f"TBLPROPERTIES ({properties})"
        )
        self.refresh()

    def add_columns(self, schema: StructType) -> None:
        """Those of `schema` that are missing."""
        there = set(self.schema().names)
        new = [_column(field) for field in schema.fields if field.name not in there]
        if new:
            self.session.sql(f"ALTER TABLE {self.sql_name} ADD COLUMNS ({', '.join(new)})")
            self.refresh()

    def commit(
        self,
        frame: DataFrame | None,
        versions: Mapping[str, int],
        known: Mapping[str, int],
        *,
        is_replacing: bool = False,
    ) -> int:
        """Rows and app transactions in one commit; how many rows. `known` are the versions that this writer has seen.

        `WriterFenced` where another has moved one of them since. `is_replacing` takes all other rows away.
        """
        none = self._jvm.scala.Option.empty()
        transaction = self._log.startTransaction(none, none)
        for app_id in versions:
            if int(transaction.txnVersion(app_id)) != known.get(app_id, _NEVER):
                raise WriterFenced(f"another writer has taken over {self.path}")
        actions = self._jvm.java.util.ArrayList()
        if is_replacing:
            for file in _items(transaction.filterFiles()):
                actions.add(file.remove())
        rows = 0
        if frame is not None:
            for file in _items(transaction.writeFiles(frame._jdf)):
                rows += int(json.loads(file.stats() or "{}").get("numRecords", 0))
                actions.add(file)
        now_ms = self._jvm.scala.Option.apply(int(time.time() * 1000))
        for app_id, version in versions.items():
            actions.add(self._jvm.org.apache.spark.sql.delta.actions.SetTransaction(app_id, version, now_ms))
        operation = getattr(getattr(self._jvm.org.apache.spark.sql.delta, "DeltaOperations$ManualUpdate$"), "MODULE$")
        converters = self._jvm.scala.jdk.javaapi.CollectionConverters
        self._fenced(lambda: transaction.commit(converters.asScala(actions).toSeq(), operation))
        self.refresh()
        return rows

    def overwrite(self, frame: DataFrame, partition: str, versions: tuple[str, int] | None = None) -> None:
        """These rows and columns in the place of all that are there."""
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        self._save(writer.partitionBy(partition), versions)

    def replace_where(self, frame: DataFrame, condition: str, versions: tuple[str, int]) -> None:
        """These rows in the place of those for which `condition` holds."""
        writer = frame.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        self._save(writer, versions)

    def _save(self, writer: Any, versions: tuple[str, int] | None) -> None:
        if versions is not None:
            writer = writer.option("txnAppId", versions[0]).option("txnVersion", versions[1])
        self._fenced(lambda: writer.save(self.path))
        self.refresh()

    def execute(self, statement: str, versions: tuple[str, int] | None = None) -> None:
        """A statement on the table, with an app transaction in its commit; nothing if that version is there already."""
        conf = self.session.conf
        if versions is not None:
            conf.set(_TXN_APP_ID, versions[0])
            conf.set(_TXN_VERSION, str(versions[1]))
        try:
            self._fenced(lambda: self.session.sql(statement))
        finally:
            conf.unset(_TXN_APP_ID)
            conf.unset(_TXN_VERSION)
        self.refresh()

    def _fenced(self, act: Any) -> None:
        from py4j.protocol import Py4JJavaError

        try:
            act()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getSimpleName() in _FENCED:
                raise WriterFenced(f"another writer has taken over {self.path}") from error
            raise


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _column(field: Any) -> str:
    return f"{quoted(field.name)} {field.dataType.simpleString()}"


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
