"""Spark's side of applying changes: DataFrames of messages or of typed rows become rows of changes."""

from __future__ import annotations

from collections.abc import Sequence

import pyspark.sql.functions as fn
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import DecimalType, FractionalType, IntegralType, StringType, StructType, TimestampType

from ottla.pipelines.tables.decode import Decoding
from ottla.pipelines.tables.rules import Rules, RulesRefused

MESSAGE_COLUMNS = ("key", "value", "topic", "partition", "offset")
PLACE_COLUMNS = ("topic", "partition", "offset")


def are_messages(frame: DataFrame) -> bool:
    """Whether these are messages of a topic as a source gives them, and not rows that somebody has made of them."""
    types = dict(frame.dtypes)
    return all(name in types for name in MESSAGE_COLUMNS) and types["value"] == "binary"


def check_frame(frame: DataFrame, rules: Rules) -> None:
    """RulesRefused for rules that this frame cannot follow."""
    if are_messages(frame):
        return rules.check_for_messages()
    for key in rules.keys:
        if key not in frame.columns:
            raise RulesRefused(f"keys: the source has no column {key!r}; there are {', '.join(frame.columns)}")
    try:
        frame.select(_sequence(frame, rules.sequence_by))
    except (AnalysisException, ParseException):
        raise RulesRefused(
            f"sequence_by: {rules.sequence_by!r} is neither a column nor an expression; there are the columns "
            f"{', '.join(frame.columns)}"
        ) from None


def decoded(messages: DataFrame, decoding: Decoding, buckets: int) -> DataFrame:
    """The rows of changes in messages, decoded where the messages are read."""
    rows = messages.select(*MESSAGE_COLUMNS).mapInArrow(decoding.decode, from_arrow_schema(decoding.schema()))
    if all(key in decoding.columns for key in decoding.keys):
        return rows.withColumn("_bucket", bucket(rows, decoding.keys, buckets))
    return rows.withColumn("_bucket", fn.lit(None).cast("int"))


def bucket(rows: DataFrame, keys: Sequence[str], buckets: int) -> Column:
    """The same as `layout.bucket_of`. A time is counted in microseconds, for as text it has the session's time zone."""
    kinds = {name: rows.schema[name].dataType for name in keys}
    parts = [fn.unix_micros(name) if isinstance(kinds[name], TimestampType) else fn.col(name) for name in keys]
    text = fn.concat_ws("\x00", *[part.cast("string") for part in parts])
    return (fn.crc32(text.cast("binary")) % buckets).cast("int")


def typed(frame: DataFrame, rules: Rules) -> DataFrame:
    """Rows of changes from rows that are typed already. Columns topic, partition and offset say where they are from."""
    has_places = all(name in frame.columns for name in PLACE_COLUMNS)
    data = [
        name
        for name in frame.columns
        if rules.wants(name) and not name.startswith("_") and not (has_places and name in PLACE_COLUMNS)
    ]
    frame, position = frame.select(*_with_keys(frame, rules.keys)), sortable(frame, rules.sequence_by)
    missing = fn.concat_ws(", ", *[fn.when(fn.col(key).isNull(), fn.lit(key)) for key in rules.keys])
    error = fn.when(missing != "", fn.concat(fn.lit("the change has no key: "), missing)).when(
        position.isNull(), fn.lit("the change has no position, or one that holds control characters")
    )
    condition = rules.apply_as_deletes
    if isinstance(condition, str):
        condition = fn.expr(condition)
    deleted = fn.lit(False) if condition is None else fn.coalesce(condition, fn.lit(False))
    places = [
        fn.col("topic").cast("string") if has_places else fn.lit(None).cast("string"),
        fn.col("partition").cast("int") if has_places else fn.lit(None).cast("int"),
        fn.col("offset").cast("bigint") if has_places else fn.lit(None).cast("bigint"),
    ]
    key_text = fn.to_json(fn.struct(*rules.keys))
    return frame.select(
        *[fn.col(name) for name in data],
        deleted.alias("_deleted"),
        fn.when(error.isNull(), position).alias("_position"),
        _commit_time(frame).alias("_commit_time"),
        *[place.alias(f"_{name}") for name, place in zip(PLACE_COLUMNS, places, strict=True)],
        error.alias("_error"),
        fn.lit(None).cast("string").alias("_new_columns"),
        fn.when(error.isNotNull(), key_text.cast("binary")).alias("_message_key"),
        fn.when(error.isNotNull(), fn.to_json(fn.struct("*")).cast("binary")).alias("_message_value"),
        bucket(frame, rules.keys, rules.layout.buckets).alias("_bucket"),
    )


def _with_keys(frame: DataFrame, keys: Sequence[str]) -> list[Column]:
    """All columns, with keys as `columns.key_column_of` has them; what is not a number equals nothing, and is none."""
    columns = []
    for name, kind in ((field.name, field.dataType) for field in frame.schema):
        column = fn.col(name)
        if name in keys and isinstance(kind, FractionalType) and not isinstance(kind, DecimalType):
            column = fn.when(column == 0, fn.lit(0).cast(kind)).when(~fn.isnan(column), column)
        columns.append(column.alias(name))
    return columns


def _commit_time(frame: DataFrame) -> Column:
    for name in ("_commit_time", "timestamp"):
        if name in frame.columns and isinstance(frame.schema[name].dataType, TimestampType):
            return fn.col(name)
    return fn.lit(None).cast("timestamp")


def _sequence(frame: DataFrame, sequence_by: str | Column) -> Column:
    if not isinstance(sequence_by, str):
        return sequence_by
    return fn.col(f"`{sequence_by}`") if sequence_by in frame.columns else fn.expr(sequence_by)


def sortable(frame: DataFrame, sequence_by: str | Column) -> Column:
    """The position in the form of `position.encode_position`: of a number, a text, a time or a struct of those."""
    column = _sequence(frame, sequence_by)
    kind = frame.select(column).schema[0].dataType
    if isinstance(kind, StructType):
        parts = [_sortable_part(column[field.name], field.dataType) for field in kind.fields]
        joined = fn.concat_ws(".", *parts)
        return fn.when(fn.array_contains(fn.array(*[part.isNull() for part in parts]), True), None).otherwise(joined)
    return _sortable_part(column, kind)


def _sortable_part(column: Column, kind: object) -> Column:
    if isinstance(kind, StringType):
        return fn.when(~column.rlike(r"[\x00-\x1f]"), fn.concat(fn.lit("~"), column, fn.lit("\x1f")))
    if isinstance(kind, TimestampType):
        return _sortable_part(fn.unix_micros(column), None)
    if kind is not None and not isinstance(kind, IntegralType):
        raise RulesRefused(f"sequence_by must be a whole number, a text, a time or a struct of those, not {kind}")
    digits = fn.abs(column.cast("decimal(20,0)")).cast("string")
    length = fn.length(digits)
    above = fn.concat(fn.char(fn.lit(ord("a") - 1) + length), digits)
    below = fn.concat(fn.char(fn.lit(ord("Z") + 1) - length), fn.translate(digits, "0123456789", "9876543210"))
    return fn.when(column >= 0, above).when(column < 0, below)
