"""Types of columns, in Spark's words: what fits what, what widens to what, and JSON values as Arrow columns."""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_ARROW: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
_SPARK = {arrow: name for name, arrow in _ARROW.items()}
_OTHER_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "real": "float", "tinyint": "smallint"}
_DECIMAL = re.compile(r"decimal\((\d{1,3}),\s*(\d{1,3})\)")
_NEVER_IN_NAMES = " ,;{}()=`."
# Each type may become any that stands behind it in its row.
_WIDENINGS = (("smallint", "int", "bigint"), ("smallint", "int", "double"), ("float", "double"))
_WHOLE_DIGITS = {"smallint": 5, "int": 10, "bigint": 19}
_MOST_DECIMAL_DIGITS = 38
_FRACTIONS = ("double", "float")
_WHOLE_OR_NONE = {int, type(None)}

# The years 1 to 9999: Python has no others, and other readers have their troubles with them.
FIRST_TIME_MS, LAST_TIME_MS = -62_135_596_800_000, 253_402_300_799_999
_DAY_MS = 86_400_000
_EPOCH = dt.datetime(1970, 1, 1)
_DATE_LENGTH = len("2026-11-16")

Columns = dict[str, str]


class DoesNotFit(ValueError):
    """A value or type that a column cannot take; the text says why."""


class WrittenFloat(float):
    """A number of a JSON text that knows how it was written: a decimal has more digits than a float."""

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> WrittenFloat:
        number = super().__new__(cls, text)
        number.text = text
        return number


def type_named(name: str) -> str:
    """The one name of a type that has several; refuses what is not known."""
    plain = name.strip().lower()
    plain = _OTHER_NAMES.get(plain, plain)
    decimal = _DECIMAL.fullmatch(plain)
    if plain not in _ARROW and decimal is None:
        raise DoesNotFit(f"the type {name!r} is unknown; there are {', '.join(_ARROW)} and decimal(p,s)")
    if decimal and not (1 <= int(decimal[1]) <= _MOST_DECIMAL_DIGITS and int(decimal[2]) <= int(decimal[1])):
        raise DoesNotFit(f"the type {name!r} has no 1 to {_MOST_DECIMAL_DIGITS} digits with its fraction among them")
    return plain.replace(" ", "")


def check_name(name: str, known: Iterable[str]) -> None:
    """DoesNotFit for the name of a new column that a table cannot have beside those that it has."""
    if name.startswith("_"):
        raise DoesNotFit(f"column {name!r}: names that begin with an underscore are the table's own")
    if not name or any(each in _NEVER_IN_NAMES or each < " " or "\ud800" <= each <= "\udfff" for each in name):
        raise DoesNotFit(f"column {name!r}: no name is empty or holds control characters or any of {_NEVER_IN_NAMES!r}")
    for other in known:
        if other != name and other.lower() == name.lower():
            raise DoesNotFit(f"column {name!r}: the table has {other!r}, and Spark does not tell them apart")


def arrow_type(name: str) -> pa.DataType:
    found = _DECIMAL.fullmatch(name)
    return pa.decimal128(int(found[1]), int(found[2])) if found else _ARROW[name]


def spark_type(arrow: pa.DataType) -> str:
    if pa.types.is_decimal(arrow):
        return f"decimal({arrow.precision},{arrow.scale})"
    if pa.types.is_timestamp(arrow):
        return "timestamp"
    if pa.types.is_large_string(arrow) or pa.types.is_string_view(arrow):
        return "string"
    if pa.types.is_large_binary(arrow) or pa.types.is_binary_view(arrow):
        return "binary"
    if arrow == pa.int8():
        return "smallint"
    name = _SPARK.get(arrow)
    if name is None:
        raise DoesNotFit(f"columns of type {arrow} are not supported")
    return name


def widened(column: str, known: str, asked: str) -> str:
    """The narrowest type that holds both; raises where none does."""
    if known == asked:
        return known
    for row in _WIDENINGS:
        if known in row and asked in row:
            return row[max(row.index(known), row.index(asked))]
    wider = _wider_decimal(known, asked)
    if wider is None:
        raise DoesNotFit(f"column {column!r} is {known}, which cannot become {asked}")
    return wider


def _wider_decimal(known: str, asked: str) -> str | None:
    digits = [_decimal_digits(name) for name in (known, asked)]
    if not all(digits) or not any(name.startswith("decimal") for name in (known, asked)):
        return None
    whole, fraction = max(pair[0] for pair in digits if pair), max(pair[1] for pair in digits if pair)
    return f"decimal({whole + fraction},{fraction})" if whole + fraction <= _MOST_DECIMAL_DIGITS else None


def _decimal_digits(name: str) -> tuple[int, int] | None:
    found = _DECIMAL.fullmatch(name)
    if found:
        return int(found[1]) - int(found[2]), int(found[2])
    return (_WHOLE_DIGITS[name], 0) if name in _WHOLE_DIGITS else None


def merged(known: Mapping[str, str], asked: Mapping[str, str]) -> Columns:
    """The columns of both: those that are known keep their place, new ones come behind."""
    columns = dict(known)
    for name, asked_type in asked.items():
        columns[name] = widened(name, columns[name], asked_type) if name in columns else asked_type
    return columns


def check_keys(keys: Sequence[str], known: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """A key column may only widen where its values stay the same text: by that rows are found in their buckets."""
    for key in keys:
        was, is_now = known.get(key), wanted.get(key)
        if was is not None and was != is_now and not {was, is_now} <= _WHOLE_DIGITS.keys():
            raise DoesNotFit(f"the key column {key!r} is {was}, which cannot become {is_now}")


def type_of(value: object) -> str | None:
    """The type of a JSON value for which no type is declared; None for null, which fits all."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint"
    return "double" if isinstance(value, float) else "string"


def column_of(values: Sequence[Any], type_name: str) -> pa.Array:
    """JSON values as an Arrow column of that type; raises if one does not fit."""
    try:
        return _column_of(values, type_name)
    except DoesNotFit:
        raise
    except (pa.ArrowException, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DoesNotFit(f"a value does not fit {type_name}: {_first_line(error)}") from error


def key_column_of(values: Sequence[Any], type_name: str) -> pa.Array:
    return with_one_zero(column_of(values, type_name))


def with_one_zero(keys: Any) -> Any:
    """A column of keys. Zero has two signs and is one number: both are one row, and must be one text."""
    return pc.add(keys, pa.scalar(0, keys.type)) if pa.types.is_floating(keys.type) else keys


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]


def _column_of(values: Sequence[Any], type_name: str) -> pa.Array:
    arrow = arrow_type(type_name)
    if type_name == "string":
        return pa.array([value if value is None or type(value) is str else _text(value) for value in values], arrow)
    if type_name == "binary":
        return pa.array([None if value is None else base64.b64decode(value, validate=True) for value in values], arrow)
    if type_name in _FRACTIONS:
        return pa.array([None if value is None else _float(value) for value in values], arrow)
    if type_name == "timestamp":
        return _timestamps(values, arrow)
    if type_name == "date":
        return _within_years(pa.array(values, pa.string()).cast(arrow), pa.int32(), _DAY_MS)
    if type_name.startswith("decimal"):
        return pa.array([None if value is None else _decimal_text(value) for value in values], pa.string()).cast(arrow)
    if type_name == "boolean":
        return pa.array([None if value is None else _boolean(value) for value in values], arrow)
    if set(map(type, values)) <= _WHOLE_OR_NONE:
        return pa.array(values, arrow)
    return pa.array([None if value is None else _whole(value) for value in values], arrow)


def _whole(value: object) -> int:
    """Arrow would take true for 1, and cut off a fraction without a word."""
    if type(value) is int:
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise DoesNotFit(f"{value!r} is no whole number")


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _float(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DoesNotFit(f"{value!r} is no number")
    return float(value)


def _boolean(value: object) -> bool:
    if value is True or value is False or value in (0, 1):
        return bool(value)
    raise DoesNotFit(f"{value!r} is neither true nor false")


def _decimal_text(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise DoesNotFit(f"{value!r} is no number")
    if isinstance(value, WrittenFloat):
        return value.text
    return repr(value) if isinstance(value, float) else str(value)


def _timestamps(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """ISO 8601 texts, or milliseconds since 1970."""
    if all(value is None or type(value) is int for value in values):
        times = _within_years(pa.array(values, pa.int64()), pa.int64(), 1)
        return pc.multiply(times, 1000).cast(arrow)
    texts = [_time_text(value) for value in values]
    times = pa.array(texts, pa.string()).cast(arrow)
    _within_years(times.cast(pa.timestamp("ms", tz="UTC"), safe=False), pa.int64(), 1)
    return times


def _within_years(times: pa.Array, plain: pa.DataType, unit_ms: int) -> pa.Array:
    """Times that a calendar has; `unit_ms` is what one of them counts."""
    ends = pc.min_max(times.cast(plain)).as_py()
    if ends["min"] is not None and not FIRST_TIME_MS <= ends["min"] * unit_ms <= ends["max"] * unit_ms <= LAST_TIME_MS:
        raise DoesNotFit("the years of a time are 1 to 9999")
    return times


def _time_text(value: object) -> object:
    """As text with a zone: UTC, where it says nothing else."""
    if type(value) is int:
        return f"{(_EPOCH + dt.timedelta(milliseconds=value)).isoformat(timespec='microseconds')}Z"
    return _with_zone(value) if isinstance(value, str) else value


def _with_zone(text: str) -> str:
    if len(text) == _DATE_LENGTH:
        return f"{text}T00:00:00Z"
    has_zone = text.endswith("Z") or "+" in text[_DATE_LENGTH:] or "-" in text[_DATE_LENGTH:]
    return text if has_zone else f"{text}Z"
