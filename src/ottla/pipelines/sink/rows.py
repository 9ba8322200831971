"""Rows of a DataFrame as records: which column is what, and where each row goes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

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
    names = _known_names(schema.fieldNames())
    if "value" not in names:
        raise OptionError(f"the sink ottla needs a column value; there are {', '.join(schema.fieldNames())}")
    if topic is None and "topic" not in names:
        raise OptionError("the sink ottla needs a column topic or the option topic")
    if with_timestamp and "timestamp" not in names:
        raise OptionError("option includeTimestamp needs a column timestamp")
    for known, name in names.items():
        kind, kinds = schema[name].dataType, _KINDS[known]
        is_used = known != "timestamp" or with_timestamp
        if is_used and not isinstance(kind, kinds):
            wanted = " or ".join(each.typeName() for each in kinds)
            raise OptionError(f"column {name} is {wanted}, not {kind.simpleString()}")
    if "headers" in names and not _is_headers(schema[names["headers"]].dataType):
        raise OptionError("column headers is array<struct<key:string,value:binary>>")


def _known_names(names: Iterable[str]) -> dict[str, str]:
    """The columns that mean something here, as this DataFrame has them: Spark's names have no case."""
    known: dict[str, str] = {}
    for name in names:
        if name.lower() in _KINDS and known.setdefault(name.lower(), name) != name:
            raise OptionError(f"columns {known[name.lower()]} and {name} are the same to the sink ottla")
    return known


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
    known = _known_names(batch.schema.names)
    names = [name for name in (*_SENT, *(["timestamp"] if with_timestamp else [])) if name in known]
    sent = pa.RecordBatch.from_arrays([batch.column(known[name]) for name in names], names=names)
    if topic is not None:
        if batch.num_rows:
            yield topic, sent
        return
    topics = batch.column(known["topic"])
    if topics.null_count:
        raise ValueError("a row has no topic: column topic is null, and option topic is not set")
    for name in pc.unique(topics).to_pylist():
        yield name, sent.filter(pc.equal(topics, name))
