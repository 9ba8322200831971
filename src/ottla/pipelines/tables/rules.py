"""What is asked of a table that follows changes, in the words of Spark's AutoCDC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.pipelines.tables.columns import Columns, DoesNotFit, check_name
from ottla.pipelines.tables.dead_letters import DeadLetters
from ottla.pipelines.tables.decode import Decoding
from ottla.pipelines.tables.layout import DEFAULT_BUCKETS, Layout

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_COLUMN = re.compile(r"Column<'(.*)'>", re.DOTALL)
ENGINES = ("deltalake", "delta-spark")
MOST_BUCKETS = 4096  # each is a folder, and an app transaction of every fold
ON_ERROR = ("dead_letters", "stop")


class RulesRefused(ValueError):
    """Rules that contradict each other or miss something; the text says what."""


@dataclass(frozen=True)
class Rules:
    """How changes become rows. See `apply_changes` for what each means."""

    keys: tuple[str, ...]
    sequence_by: str | Column = "position"
    apply_as_deletes: Column | str | None = None
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] = ()
    stored_as_scd_type: int = 1
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] | None = None
    columns: Columns = field(default_factory=dict)
    source_table: str | None = None
    buckets: int = DEFAULT_BUCKETS
    engine: str = "deltalake"
    on_error: str = "dead_letters"
    dead_letters: DeadLetters | None = None
    storage_options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        self._check()

    def _check(self) -> None:
        if not self.keys:
            raise RulesRefused("keys: a table needs at least one key column")
        if len(set(self.keys)) < len(self.keys):
            raise RulesRefused(f"keys: a column stands there twice: {', '.join(self.keys)}")
        if self.column_list is not None and self.except_column_list:
            raise RulesRefused("column_list and except_column_list exclude each other")
        for key in self.keys:
            if not self.wants(key):
                raise RulesRefused(f"keys: the key column {key!r} cannot be left out")
        for name in (*self.keys, *self.columns):
            _check_name(name, self.columns)
        if self.stored_as_scd_type not in (1, 2):
            raise RulesRefused(f"stored_as_scd_type is 1 or 2, not {self.stored_as_scd_type!r}")
        tracks = (self.track_history_column_list, self.track_history_except_column_list)
        if any(track is not None for track in tracks) and self.stored_as_scd_type != 2:
            raise RulesRefused("track_history_column_list needs stored_as_scd_type 2")
        if all(track is not None for track in tracks):
            raise RulesRefused("track_history_column_list and track_history_except_column_list exclude each other")
        if self.track_history_except_column_list is not None and not self.columns:
            raise RulesRefused("track_history_except_column_list needs the table's columns to be declared")
        if self.engine not in ENGINES:
            raise RulesRefused(f"engine is one of {', '.join(ENGINES)}, not {self.engine!r}")
        if self.on_error not in ON_ERROR:
            raise RulesRefused(f"on_error is one of {', '.join(ON_ERROR)}, not {self.on_error!r}")
        if not 1 <= self.buckets <= MOST_BUCKETS:
            raise RulesRefused(f"buckets is 1 to {MOST_BUCKETS}, not {self.buckets}")

    def wants(self, column: str) -> bool:
        if self.column_list is not None and column not in self.column_list:
            return False
        return column not in self.except_column_list

    def check_for_messages(self) -> None:
        """Of messages the events say what is deleted, and where they stand."""
        if self.event_order is None:
            raise RulesRefused(
                f'sequence_by is "position" or "offset" where the source has change events, not {self.sequence_by!r}'
            )
        if self.apply_as_deletes is not None:
            raise RulesRefused("apply_as_deletes is for rows of one's own: change events say what is deleted")

    @property
    def event_order(self) -> str | None:
        """What change events are ordered by; None for an order that only rows have."""
        order = self.sequence_by
        return order if isinstance(order, str) and order in ("position", "offset") else None

    @property
    def layout(self) -> Layout:
        tracked = self.track_history_column_list
        if self.track_history_except_column_list is not None:
            tracked = tuple(name for name in self.columns if name not in self.track_history_except_column_list)
        return Layout(self.keys, self.stored_as_scd_type, self.buckets, tracked)

    def decoding(self, columns: Columns) -> Decoding:
        listed = None if self.column_list is None else frozenset(self.column_list)
        left_out = frozenset(self.except_column_list)
        return Decoding(self.keys, columns, self.source_table, self.event_order or "position", left_out, listed)


def _check_name(name: str, known: Iterable[str]) -> None:
    try:
        check_name(name, known)
    except DoesNotFit as error:
        raise RulesRefused(str(error)) from error


def names(given: Sequence[str | Column] | str | Column | None) -> tuple[str, ...] | None:
    """A list of columns as AutoCDC takes it; one may stand alone, and a Column stands for its name."""
    if given is None:
        return None
    if isinstance(given, list | tuple):
        return tuple(_name(each) for each in given)
    return (_name(given),)


def _name(given: object) -> str:
    return given if isinstance(given, str) else _COLUMN.sub(r"\1", str(given))


def scd_type(given: int | str | None) -> int:
    """As AutoCDC takes it: a number, a text, or nothing for 1."""
    return {"1": 1, "2": 2}.get(given, 0) if isinstance(given, str) else 1 if given is None else given


Transform = Callable[["DataFrame"], "DataFrame"]
Options = Mapping[str, Any]
