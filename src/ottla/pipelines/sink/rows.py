"""Rows of a DataFrame as records: which column is what, and where each row goes."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from ottla.pipelines.options import OptionError

_SENT = ("key", "value", "headers", "partition")
_KINDS: dict[str, tuple[type[DataType], ...]] = {
    "key": (BinaryType, StringType),
    "value": (BinaryType, StringType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
    "timestamp": (TimestampType,),
}


def check_schema(schema: StructType, topic: str | None, *, with_timestamp: bool) -> None:
    """OptionError where rows of this kind cannot be sent. Columns that mean nothing here are left out."""
    names = set(schema.fieldNames())
    if "value" not in names:
        raise OptionError(f"the sink ottla needs a column value; there are {', '.join(schema.fieldNames())}")
    if topic is None and "topic" not in names:
        raise OptionError("the sink ottla needs a column topic or the option topic")
    if with_timestamp and "timestamp" not in names:
        raise OptionError("option includeTimestamp needs a column timestamp")
    for field in schema:
        kinds = _KINDS.get(field.name)
        is_used = field.name != "timestamp" or with_timestamp
        if kinds is not None and is_used and not isinstance(field.dataType, kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise OptionError(f"column {field.name} is {wanted}, not {field.dataType.simpleString()}")
    if "headers" in names and not _is_headers(schema["headers"].dataType):
        raise OptionError("column headers is array<struct<key:string,value:binary>>")


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return [(field.name, field.dataType) for field in kind.elementType] == [
        ("key", StringType()),
        ("value", BinaryType()),
    ]


def tables_by_topic(
    batch: pa.RecordBatch, topic: str | None, *, with_timestamp: bool
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """What is to be sent to each topic, in the order of the rows."""
    names = [name for name in (*_SENT, *(["timestamp"] if with_timestamp else [])) if name in batch.schema.names]
    sent = batch.select(names)
    if topic is not None:
        if batch.num_rows:
            yield topic, sent
        return
    topics = batch.column("topic")
    if topics.null_count:
        raise ValueError("a row has no topic: column topic is null, and option topic is not set")
    for name in pc.unique(topics).to_pylist():
        yield name, sent.filter(pc.equal(topics, name))
