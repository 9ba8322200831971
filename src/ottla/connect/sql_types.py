"""What columns hold, in the words of change events: which of two types holds the values of both, and how a value is
given to a column. No I/O."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import json
import re
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_LIKE_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_PLAIN_WHOLE = re.compile(r"0|-?[1-9]\d*", re.ASCII)
_WHOLE = ("boolean", "smallint", "int", "bigint")
_DIGITS = {"boolean": 1, "smallint": 5, "int": 10, "bigint": 19}
EXACT_IN_DOUBLE = 1 << 53
"""Up to here, every whole number has a place of its own among the floating ones."""
DIGITS_IN_DOUBLE = 15


class DoesNotFit(ValueError):
    """A column or value that the table cannot take; the text says why."""


def word_of(value: Any) -> str | None:
    """The type of a value in JSON, where nothing else says it; None for null."""
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int():
            return "bigint" if -(1 << 63) <= value < 1 << 63 else f"decimal({len(str(abs(value)))},0)"
        case float():
            return "double"
    return "string"


def digits_of(word: str) -> tuple[int, int] | None:
    """Of a number that is exact: before and behind the point."""
    if (found := _DECIMAL.fullmatch(word)) is not None:
        return int(found[1]) - int(found[2]), int(found[2])
    return (_DIGITS[word], 0) if word in _DIGITS else None


def joined(one: str, other: str) -> str | None:
    """The narrowest type that holds the values of both; None where there is none."""
    if one == other:
        return one
    if one in _WHOLE and other in _WHOLE:
        return max(one, other, key=_WHOLE.index)
    exact, other_exact = digits_of(one), digits_of(other)
    if exact is not None and other_exact is not None:
        whole, fraction = (max(each) for each in zip(exact, other_exact, strict=True))
        return f"decimal({whole + fraction},{fraction})"
    both = {one, other}
    if both <= {"float", "double"}:
        return "double"
    if both == {"date", "timestamp"}:
        return "timestamp"
    if "string" in both:
        return None if both & {"binary", "boolean"} else "string"
    if both & {"float", "double"} and "boolean" not in both:
        number = exact or other_exact
        # Of what is in a column of bigint, the table looks whether it is small enough.
        if number is not None and ("bigint" in both or sum(number) <= DIGITS_IN_DOUBLE):
            return "double"
    return None


def word_of_column(kind: Any) -> str | None:
    """What a column of the database holds; None where there is no word for it: values are given to it as they are."""
    if isinstance(kind, sa.Boolean) or (isinstance(kind, mysql.TINYINT) and kind.display_width == 1):
        return "boolean"
    if isinstance(kind, sa.Integer):
        is_small = isinstance(kind, sa.SmallInteger | mysql.TINYINT)
        return "smallint" if is_small else "bigint" if isinstance(kind, sa.BigInteger) else "int"
    if isinstance(kind, sa.Float):
        return "float" if isinstance(kind, mysql.FLOAT | sa.REAL) else "double"
    if isinstance(kind, sa.Numeric):
        return None if kind.precision is None else f"decimal({kind.precision},{kind.scale or 0})"
    if isinstance(kind, sa.DateTime):
        return "timestamp"
    if isinstance(kind, sa.Date):
        return "date"
    if isinstance(kind, sa.LargeBinary | sa.types._Binary):
        return "binary"
    return "string" if isinstance(kind, sa.String) and not isinstance(kind, sa.Enum) else None


# Values.


def is_kept_as_number(text: str, *, is_real: bool) -> bool:
    """Whether a text reads the same from a column of SQLite that makes numbers of what looks like one."""
    if _LIKE_NUMBER.fullmatch(text) is None:
        return True
    number = float(text)
    if is_real or not number.is_integer():
        return repr(number) == text
    return _PLAIN_WHOLE.fullmatch(text) is not None and -(1 << 63) <= int(text) < 1 << 63


def seconds_digits(value: Any) -> int:
    """How many digits a time has behind its seconds, without zeros at their end."""
    text = str(value) if isinstance(value, dt.datetime | dt.time | str) else ""
    return len(text.partition(".")[2].rstrip("0"))


def to_sql(name: str, value: Any, word: str, column: str | None) -> Any:
    """A value of a change event, of the type `word`, as a column that holds `column` takes it."""
    if value is None:
        return None
    try:
        if column == "string":
            return _text(value)
        return _given(_read(value, word), column)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DoesNotFit(f"column {name}: {value!r} is no {word}: {error}") from None


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(value: Any, word: str) -> Any:
    if word.startswith("decimal"):
        return decimal.Decimal(str(value))
    match word:
        case "binary":
            return base64.b64decode(value, validate=True)
        case "date":
            return dt.date.fromisoformat(value)
        case "timestamp":
            return _moment(value)
        case "float" | "double":
            return float(value)
        case "string":
            return _text(value)
        case "smallint" | "int" | "bigint":
            return int(value)
    return value


def _given(value: Any, column: str | None) -> Any:
    """For a column that is wider than the value."""
    if column == "double" and isinstance(value, int | decimal.Decimal):
        number = float(value)
        if decimal.Decimal(repr(number)) != value:
            raise ValueError("it is not exact in a column of floating numbers")
        return number
    if column == "timestamp" and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return dt.datetime.combine(value, dt.time())
    return int(value) if isinstance(value, bool) and column != "boolean" and column is not None else value


def _moment(value: Any) -> dt.datetime:
    """In UTC, without a zone."""
    if isinstance(value, int):
        return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=value)
    moment = dt.datetime.fromisoformat(value)
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment
