"""Types of columns, in Spark's words: what fits what, what widens to what, and JSON values as Arrow columns."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
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
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
# Each type may become any that stands behind it in its row.
_WIDENINGS = (("smallint", "int", "bigint"), ("smallint", "int", "double"), ("float", "double"))
_WHOLE_DIGITS = {"smallint": 5, "int": 10, "bigint": 19}
_MOST_DECIMAL_DIGITS = 38

Columns = dict[str, str]


class DoesNotFit(ValueError):
    """A value or type that a column cannot take; the text says why."""


def type_named(name: str) -> str:
    """The one name of a type that has several; refuses what is not known."""
    plain = name.strip().lower()
    plain = _OTHER_NAMES.get(plain, plain)
    if plain not in _ARROW and _DECIMAL.fullmatch(plain) is None:
        raise DoesNotFit(f"the type {name!r} is unknown; there are {', '.join(_ARROW)} and decimal(p,s)")
    return plain.replace(" ", "")


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
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise DoesNotFit(f"a value does not fit {type_name}: {str(error).splitlines()[0]}") from error


def _column_of(values: Sequence[Any], type_name: str) -> pa.Array:
    arrow = arrow_type(type_name)
    if type_name == "string":
        return pa.array([value if value is None or type(value) is str else _text(value) for value in values], arrow)
    if type_name == "binary":
        return pa.array([None if value is None else base64.b64decode(value, validate=True) for value in values], arrow)
    if type_name in ("double", "float"):
        return pa.array([None if value is None else _float(value) for value in values], arrow)
    if type_name == "timestamp":
        return _timestamps(values, arrow)
    if type_name == "date":
        return pa.array(values, pa.string()).cast(arrow)
    if type_name.startswith("decimal"):
        return pa.array([None if value is None else _decimal_text(value) for value in values], pa.string()).cast(arrow)
    if type_name != "boolean" and any(type(value) is bool for value in values):
        raise DoesNotFit(f"true and false do not fit {type_name}")
    if type_name == "boolean":
        return pa.array([None if value is None else _boolean(value) for value in values], arrow)
    return pa.array(values, arrow)


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
    return repr(value) if isinstance(value, float) else str(value)


def _timestamps(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    """ISO 8601 texts, or milliseconds since 1970."""
    if all(value is None or type(value) is int for value in values):
        return pc.multiply(pa.array(values, pa.int64()), 1000).cast(arrow)
    texts = [value if value is None or type(value) is not str or _has_zone(value) else value + "Z" for value in values]
    return pa.array(texts, pa.string()).cast(arrow)


def _has_zone(text: str) -> bool:
    return text.endswith("Z") or "+" in text[10:] or "-" in text[10:]
