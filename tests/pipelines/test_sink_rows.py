"""Rows of a DataFrame as records, without a session of Spark."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from ottla.pipelines.options import OptionError
from ottla.pipelines.sink.rows import check_schema, tables_by_topic


def schema_of(*names: str) -> StructType:
    return StructType([StructField(name, StringType()) for name in names])


def test_names_of_columns_have_no_case() -> None:
    check_schema(schema_of("KEY", "Value", "TOPIC"), None, with_timestamp=False)
    batch = pa.record_batch({"Other": [0, 0], "Value": ["v", "w"], "TOPIC": ["a", "b"], "KEY": ["k", None]})
    found = {topic: rows.to_pylist() for topic, rows in tables_by_topic(batch, None, with_timestamp=False)}
    assert found == {"a": [{"key": "k", "value": "v"}], "b": [{"key": None, "value": "w"}]}


def test_a_column_of_the_wrong_type_is_named_as_it_is_written() -> None:
    schema = StructType([StructField("VALUE", LongType())])
    with pytest.raises(OptionError, match="column VALUE is binary or string, not bigint"):
        check_schema(schema, "t", with_timestamp=False)


def test_two_columns_that_would_be_the_same_are_refused() -> None:
    with pytest.raises(OptionError, match="columns value and VALUE are the same to the sink ottla"):
        check_schema(schema_of("value", "VALUE"), "t", with_timestamp=False)
