"""What kind of value each setting of a pipeline's TOML file takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class SettingRefused(ValueError):
    """A setting that is unknown or has a wrong value; the text says which and what it takes."""


class Kind(NamedTuple):
    words: str
    takes: Callable[[Any], bool]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, str) and each for each in value)


TEXT = Kind("a text", lambda value: isinstance(value, str) and bool(value))
TEXTS = Kind("a list of texts", lambda value: TEXT.takes(value) or _is_texts(value))
TEXT_BY_NAME = Kind(
    'a table of texts, as in {"name" = "value"}',
    lambda value: isinstance(value, dict) and all(isinstance(each, str) for each in value.values()),
)
COUNT = Kind("a whole number from 1 to 2^63 - 1", lambda value: type(value) is int and 1 <= value < 1 << 63)
HOURS = Kind("a whole number from 0 to 1,000,000", lambda value: type(value) is int and 0 <= value <= 1_000_000)
PERIOD = Kind("a number from 0.001 to 1,000,000", lambda value: _is_number(value) and 0.001 <= value <= 1_000_000)
POSITIVE = Kind("a number above 0", lambda value: _is_number(value) and value > 0)
NUMBER = Kind("a number", _is_number)

PIPELINE: Mapping[str, Kind] = {
    "bootstrap": TEXT,
    "name": TEXT,
    "format": TEXT,
    "engine": TEXT,
    "options": TEXT_BY_NAME,
    "spark": TEXT_BY_NAME,
    "storage_options": TEXT_BY_NAME,
    "trigger_seconds": PERIOD,
    "max_offsets_per_trigger": COUNT,
    "max_bytes_per_trigger": COUNT,
    "fold_minutes": POSITIVE,
    "fold_idle_seconds": POSITIVE,
    "clean_minutes": POSITIVE,
    "retention_hours": HOURS,
    "tombstone_hours": NUMBER,
    "start_seconds": POSITIVE,
    "group": TEXT,
}
TABLE: Mapping[str, Kind] = {
    "source": TEXT,
    "target": TEXT,
    "keys": TEXTS,
    "sequence_by": TEXT,
    "apply_as_deletes": TEXT,
    "column_list": TEXTS,
    "except_column_list": TEXTS,
    "stored_as_scd_type": COUNT,
    "track_history_column_list": TEXTS,
    "track_history_except_column_list": TEXTS,
    "columns": TEXT_BY_NAME,
    "source_table": TEXT,
    "on_error": TEXT,
    "dead_letter_topic": TEXT,
    "buckets": COUNT,
    "check_against": TEXT,
}


def check_settings(given: Mapping[str, Any], kinds: Mapping[str, Kind], what: str) -> None:
    for name, value in given.items():
        if name not in kinds:
            raise SettingRefused(f"{what} has no setting {name!r}; there are {', '.join(sorted(kinds))}")
        if not kinds[name].takes(value):
            raise SettingRefused(f"{name} is {kinds[name].words}, not {value!r}")
