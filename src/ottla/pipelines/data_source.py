"""The data source `ottla`, as Spark finds it. Light: what a reader or a writer needs is imported when it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from ottla.pipelines.batch_source import BatchReader
    from ottla.pipelines.sink.writers import BatchWriter, StreamWriter
    from ottla.pipelines.stream_source import StreamReader

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


class OttlaDataSource(DataSource):
    """Topics of Ottla or Apache Kafka, with the options and columns of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        from ottla.pipelines.options import Options
        from ottla.pipelines.source_options import BATCH_NAMES, STREAM_NAMES, columns_of

        options = Options(self.options, {*BATCH_NAMES, *STREAM_NAMES}, "the source ottla")
        return StructType([StructField(name, TYPES[name]) for name in columns_of(options)])

    def reader(self, schema: StructType) -> BatchReader:
        from ottla.pipelines.batch_source import BatchReader
        from ottla.pipelines.source_options import source_options

        self._check(schema)
        return BatchReader(source_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> StreamReader:  # noqa: N802 - Spark's name
        from ottla.pipelines.source_options import source_options
        from ottla.pipelines.stream_source import StreamReader

        self._check(schema)
        return StreamReader(source_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from ottla.pipelines.sink.options import sink_options
        from ottla.pipelines.sink.writers import BatchWriter

        if overwrite:
            raise ValueError('a topic cannot be overwritten: write with .mode("append")')
        return BatchWriter(sink_options(self.options, is_stream=False), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802
        from ottla.pipelines.sink.options import sink_options
        from ottla.pipelines.sink.writers import StreamWriter

        if overwrite:
            raise ValueError("a topic cannot be overwritten: the output mode is append or update, not complete")
        return StreamWriter(sink_options(self.options, is_stream=True), schema)

    def _check(self, schema: StructType) -> None:
        """The schema is ours to say, except for which of the columns there are."""
        if schema != self.schema():
            raise ValueError(
                "the columns of the source ottla are its own: leave out .schema(), and choose with option columns"
            )
