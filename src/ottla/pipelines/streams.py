"""Topics in, topics out, DataFrames between: exactly once, in a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ottla.pipelines.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

POLL_SECONDS = 1


class Streams:
    """Queries that belong together: one name, one folder for their checkpoints, one cluster.

    `format` is ottla, or kafka for Spark's own source and sink, whose jars must be there then; its sink writes
    at least once. `available_now`: read what is there, then end.
    """

    def __init__(
        self, bootstrap: str, name: str, checkpoint: str, *, spark: SparkSession | None = None,
        format: Literal["ottla", "kafka"] = "ottla", available_now: bool = False,
    ) -> None:  # fmt: skip
        self.spark = spark_session(name=name) if spark is None else spark
        self.name = name
        self.queries: list[StreamingQuery] = []
        self._bootstrap = bootstrap
        self._checkpoint = checkpoint.rstrip("/")
        self._format = format
        self._available_now = available_now

    def read(self, topics: str, schema: str | None = None, **options: str) -> DataFrame:
        """Topics, by name and comma, from their first record on unless `startingOffsets` says otherwise.

        With a schema, in Spark's words ("id LONG, amount DOUBLE"), values are JSON, and become columns; beside them
        are record_key as text, record_time and record_topic. Without one the columns are those of the source.
        """
        from pyspark.sql import functions as F  # noqa: N812 - as everybody has it

        reader = self.spark.readStream.format(self._format).option("kafka.bootstrap.servers", self._bootstrap)
        given = {"subscribe": topics, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
        frame = reader.options(**{**given, **options}).load()
        if schema is None:
            return frame
        return frame.select(
            F.from_json(F.col("value").cast("string"), schema).alias("json"),
            F.col("key").cast("string").alias("record_key"),
            F.col("timestamp").alias("record_time"),
            F.col("topic").alias("record_topic"),
        ).select("json.*", "record_key", "record_time", "record_topic")

    def write(
        self, frame: DataFrame, topic: str, *, key: str | Column | None = None,
        output_mode: Literal["append", "update"] = "append", **options: str,
    ) -> StreamingQuery:  # fmt: skip
        """Rows as JSON records of a topic, with a column or an expression as their key. Begins at once.

        A frame that has a column `value` already, and no key is named, is written as it is.
        """
        from pyspark.sql import functions as F  # noqa: N812

        if key is not None or "value" not in frame.columns:
            value = F.to_json(F.struct(*frame.columns)).alias("value")
            columns = [value]
            if key is not None:
                found = F.col(key) if isinstance(key, str) else key
                columns.append(found.cast("string").alias("key"))
            frame = frame.select(*columns)
        given = {
            "kafka.bootstrap.servers": self._bootstrap,
            "topic": topic,
            "checkpointLocation": f"{self._checkpoint}/{topic}",
        }
        if self._format == "ottla":
            given["kafka.transactional.id"] = f"{self.name}-{topic}"
        writer = frame.writeStream.format(self._format).outputMode(output_mode).options(**{**given, **options})
        if self._available_now:
            writer = writer.trigger(availableNow=True)
        query = writer.queryName(f"{self.name} to {topic}").start()
        self.queries.append(query)
        return query

    def wait(self) -> None:
        """Until all queries have ended. If one fails, the others are stopped, and its error is raised."""
        try:
            waiting = list(self.queries)
            while waiting:
                waiting = [query for query in waiting if not query.awaitTermination(POLL_SECONDS)]
        finally:
            self.stop()

    def stop(self) -> None:
        for query in self.queries:
            query.stop()
