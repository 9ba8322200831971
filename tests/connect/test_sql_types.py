"""Which type holds the values of two, and how values are given to columns that are wider than they are."""

import datetime as dt
import itertools
from decimal import Decimal
from typing import Any

import pytest

from ottla.connect.sql_types import DoesNotFit, joined, to_sql, word_of

WORDS = ["boolean", "smallint", "int", "bigint", "decimal(10,2)", "decimal(30,10)", "float", "double", "date",
         "timestamp", "string", "binary"]  # fmt: skip


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("smallint", "bigint", "bigint"),
        ("boolean", "int", "int"),
        ("int", "decimal(10,2)", "decimal(12,2)"),
        ("decimal(10,2)", "decimal(6,4)", "decimal(12,4)"),
        ("float", "double", "double"),
        ("int", "double", "double"),
        ("bigint", "double", "double"),
        ("decimal(10,2)", "double", "double"),
        ("decimal(30,10)", "double", None),
        ("boolean", "double", None),
        ("date", "timestamp", "timestamp"),
        ("date", "int", None),
        ("int", "string", "string"),
        ("timestamp", "string", "string"),
        ("boolean", "string", None),
        ("binary", "string", None),
    ],
)
def test_a_type_that_holds_both(one: str, other: str, both: str | None) -> None:
    assert joined(one, other) == joined(other, one) == both


def test_what_holds_both_is_held_by_itself() -> None:
    for one, other in itertools.product(WORDS, WORDS):
        both = joined(one, other)
        if both is not None:
            assert joined(both, one) == joined(both, other) == both


@pytest.mark.parametrize(
    ("value", "word", "column", "given"),
    [
        (7, "int", "int", 7),
        (7, "bigint", "double", 7.0),
        (7, "int", "string", "7"),
        (True, "boolean", "int", 1),
        (True, "boolean", "boolean", True),
        (True, "boolean", "string", "true"),
        ({"a": [1]}, "string", "string", '{"a": [1]}'),
        ({"a": "é"}, "string", None, '{"a": "é"}'),
        ("1.50", "decimal(4,2)", "decimal(4,2)", Decimal("1.50")),
        ("0.1", "decimal(4,2)", "double", 0.1),
        ("2026-01-02", "date", "timestamp", dt.datetime(2026, 1, 2)),
        ("2026-01-02T03:04:05+01:00", "timestamp", "timestamp", dt.datetime(2026, 1, 2, 2, 4, 5)),
        (None, "int", "string", None),
    ],
)
def test_a_value_as_its_column_takes_it(value: Any, word: str, column: str | None, given: Any) -> None:
    found = to_sql("c", value, word, column)
    assert (found, type(found)) == (given, type(given))


@pytest.mark.parametrize(
    ("value", "word", "column"),
    [
        ((1 << 53) + 1, "bigint", "double"),
        ("12345678901234567890", "decimal(20,0)", "double"),
        ("much", "decimal(4,2)", "decimal(4,2)"),
        ("noon", "timestamp", "timestamp"),
    ],
)
def test_a_value_that_would_change_is_refused(value: Any, word: str, column: str) -> None:
    with pytest.raises(DoesNotFit, match="column c: "):
        to_sql("c", value, word, column)


def test_whole_numbers_beyond_64_bits() -> None:
    assert [word_of(number) for number in ((1 << 63) - 1, 1 << 63, -(1 << 63), None)] == [
        "bigint", "decimal(19,0)", "bigint", None,
    ]  # fmt: skip
