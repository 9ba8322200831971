"""The values of settings: from text to a typed value and back, as Kafka reads and writes them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from enum import IntEnum

# What Java's String.trim takes off: every character up to the space. Python's strip takes others too.
TRIMMED = "".join(map(chr, range(0x21)))
INTEGER = re.compile(r"[+-]?\d+")
DOUBLE = re.compile(
    r"[+-]?(?:NaN|Infinity"
    r"|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+(?:\.[0-9a-fA-F]*)?|\.[0-9a-fA-F]+)[pP][+-]?\d+)[fFdD]?)",
    re.ASCII,
)
MOST_DIGITS = 1000  # leading zeros are digits too; Python converts no more than some 4,000 at once
LIST_COMMA = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")


class ConfigError(ValueError):
    """A setting is unknown, or its value cannot be; the message is the one Kafka answers with."""


class Kind(IntEnum):
    """What a setting holds, as DescribeConfigs numbers it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


@dataclass(frozen=True, slots=True)
class Password:
    """A secret: only `secret` gives it away, no text or repr does."""

    secret: str = field(repr=False)

    def __str__(self) -> str:
        return "[hidden]"


Value = bool | int | float | str | tuple[str, ...] | Password | None


def invalid_value(name: str, value: Value, complaint: str) -> ConfigError:
    """The error of a value that cannot be, for the caller to raise."""
    return ConfigError(f"Invalid value {_shown(value)} for configuration {name}: {complaint}")


def parse_value(name: str, kind: Kind, text: str) -> Value:
    """The typed value of `text`; ConfigError names the setting if the text is not of its kind."""
    trimmed = text.strip(TRIMMED)
    match kind:
        case Kind.BOOLEAN:
            if trimmed.lower() not in ("true", "false"):
                raise invalid_value(name, text, "Expected value to be either true or false")
            return trimmed.lower() == "true"
        case Kind.INT | Kind.SHORT | Kind.LONG:
            return _parse_integer(name, kind, text, trimmed)
        case Kind.DOUBLE:
            return _parse_double(name, text, trimmed)
        case Kind.LIST:
            return tuple(LIST_COMMA.split(trimmed)) if trimmed else ()
        case Kind.PASSWORD:
            return Password(trimmed)
        case _:
            return trimmed


def _parse_integer(name: str, kind: Kind, text: str, trimmed: str) -> int:
    if len(trimmed) <= MOST_DIGITS and INTEGER.fullmatch(trimmed):
        value = int(trimmed)
        bound = 1 << BITS[kind] - 1
        if -bound <= value < bound:
            return value
    raise invalid_value(name, text, f"Not a number of type {kind.name}")


def _parse_double(name: str, text: str, trimmed: str) -> float:
    match = DOUBLE.fullmatch(trimmed)
    if match is None:
        raise invalid_value(name, text, "Not a number of type DOUBLE")
    number = trimmed.rstrip("fFdD")
    if match["hex"] is None:
        return float(number)
    try:
        return float.fromhex(number)
    except OverflowError:
        return -math.inf if number.startswith("-") else math.inf


def text_of(value: Value) -> str | None:
    """The text a broker shows for a value, whatever text it was given as."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case float():
            return _double_text(value)
        case tuple():
            return ",".join(value)
        case _:
            return str(value)


def _shown(value: Value) -> str:
    """How a value stands in a message of error, where a list is in brackets."""
    if value is None:
        return "null"
    return f"[{', '.join(value)}]" if isinstance(value, tuple) else str(text_of(value))


def _double_text(value: float) -> str:
    """As Java's Double.toString: plain digits from 0.001 up to 10 million, else like 1.0E-5."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal  # rarely needed, and slow to import

    mantissa, exponent = f"{Decimal(repr(value)).normalize():E}".split("E")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
