"""Messages of a topic as rows of changes, by the batch, in Arrow. Runs wherever Spark runs Python.

One message becomes one row, or two where the primary key of a row changed: a delete of the old and an upsert of the
new. A truncate becomes a delete without a key. A message that is no change event becomes a row with the reason. A
message that needs columns that are not known yet becomes a row that names them; the batch is decoded again when the
table has them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from ottla.pipelines.tables.columns import (
    Columns,
    DoesNotFit,
    WrittenFloat,
    arrow_type,
    check_keys,
    check_name,
    column_of,
    key_column_of,
    merged,
    type_named,
    type_of,
)
from ottla.pipelines.tables.event import ChangeEvent, InvalidEvent, Row, read_event
from ottla.pipelines.tables.position import InvalidPosition, encode_position

CHANGE_FIELDS = [
    pa.field("_deleted", pa.bool_()),
    pa.field("_position", pa.string()),
    pa.field("_commit_time", pa.timestamp("us", tz="UTC")),
]
PLACE_FIELDS = [
    pa.field("_topic", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
]
# `_error` is why a message is no change, `_new_columns` what it needs; with both empty and no position it says nothing.
OUTCOME_FIELDS = [
    pa.field("_error", pa.string()),
    pa.field("_new_columns", pa.string()),
    pa.field("_message_key", pa.binary()),
    pa.field("_message_value", pa.binary()),
]


@dataclass(frozen=True, slots=True)
class Decoding:
    """How to read the changes of one table: what a worker must know.

    `sequence_by` is "position", the event's own, or "offset", for sources that have none: then the order within a
    partition of the topic is the order of changes.
    """

    keys: tuple[str, ...]
    columns: Columns
    table: str | None = None
    sequence_by: str = "position"
    left_out: frozenset[str] = frozenset()
    listed: frozenset[str] | None = None

    def schema(self) -> pa.Schema:
        data = [pa.field(name, arrow_type(type_name)) for name, type_name in self.columns.items()]
        return pa.schema([*data, *CHANGE_FIELDS, *PLACE_FIELDS, *OUTCOME_FIELDS])

    def wants(self, column: str) -> bool:
        if self.listed is not None and column not in self.listed:
            return False
        return column not in self.left_out

    def decode(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For `mapInArrow`: batches of key, value, topic, partition, offset in; batches of `schema` out."""
        for batch in batches:
            if batch.num_rows:
                yield _Batch(self).decoded(batch)


MOST_REASON_CHARACTERS = 400
# Why a message is no change, and which columns it needs.
_Outcome = tuple[str | None, str | None]


@dataclass(slots=True)
class _Change:
    data: Row
    is_deleted: bool
    position: str
    commit_time_ms: int | None


@dataclass(slots=True)
class _Batch:
    """The rows of one batch while they are read."""

    decoding: Decoding
    checked_schemas: dict[str, str | None] = field(default_factory=dict)
    unknown_keys: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.unknown_keys = [key for key in self.decoding.keys if key not in self.decoding.columns]

    def decoded(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        names = ("key", "value", "topic", "partition", "offset")
        keys, values, topics, partitions, offsets = (batch.column(name).to_pylist() for name in names)
        changes: list[_Change | None] = []
        outcomes: list[_Outcome] = []
        places: list[int] = []
        for index, (document, problem) in enumerate(_parsed(values, self._decode_json())):
            found, error, new_columns = self._read(document, problem, keys[index], offsets[index])
            for change in found or (None,):
                changes.append(change)
                outcomes.append((error, new_columns))
                places.append(index)
        data = self._data_columns(changes, outcomes)
        _refuse_whole(outcomes, places)
        kept = [
            None if error or new_columns else change
            for change, (error, new_columns) in zip(changes, outcomes, strict=True)
        ]
        columns = [
            *data,
            pa.array([change and change.is_deleted for change in kept], pa.bool_()),
            pa.array([change and change.position for change in kept], pa.string()),
            column_of([change and change.commit_time_ms for change in kept], "timestamp"),
            pa.array([topics[index] for index in places], pa.string()),
            pa.array([partitions[index] for index in places], pa.int32()),
            pa.array([offsets[index] for index in places], pa.int64()),
            pa.array([error for error, _ in outcomes], pa.string()),
            pa.array([new_columns for _, new_columns in outcomes], pa.string()),
            *(
                pa.array(
                    [part[at] if error else None for at, (error, _) in zip(places, outcomes, strict=True)], pa.binary()
                )
                for part in (keys, values)
            ),
        ]
        return pa.record_batch(columns, schema=self.decoding.schema())

    def _decode_json(self) -> Callable[[str], object]:
        """Only a column of decimals asks for the digits of a number."""
        has_decimals = any(kind.startswith("decimal") for kind in self.decoding.columns.values())
        return _DECODE_EXACTLY if has_decimals else _DECODE_JSON

    def _read(
        self, document: object, problem: str | None, message_key: bytes | None, offset: int
    ) -> tuple[list[_Change], str | None, str | None]:
        """The changes of a message, or why there are none, or the columns that are needed first."""
        if problem is not None:
            return [], problem, None
        if document is None:  # a tombstone for the compaction of the topic says nothing to a table
            return [], None, None
        try:
            event = read_event(document, message_key)
            if self.decoding.table is not None and event.table not in (None, self.decoding.table):
                return [], None, None
            changes = self._changes(event, offset)
            needed = self._needed_columns(event, changes)
        except (InvalidEvent, InvalidPosition, DoesNotFit, RecursionError) as error:
            return [], _shortened(str(error)), None
        return changes, None, needed

    def _changes(self, event: ChangeEvent, offset: int) -> list[_Change]:
        position = self._position(event, offset)
        commit_time_ms = event.commit_time_ms
        keys = self.decoding.keys
        if event.operation == "t":
            return self._truncation(position, commit_time_ms)
        if event.operation == "d":
            old_key = _key_in(event.before, keys) or _key_in(event.key, keys)
            if old_key is None:
                raise InvalidEvent(f"the delete has no key ({', '.join(keys)})")
            return [_Change(old_key, True, position, commit_time_ms)]
        if event.after is None:
            raise InvalidEvent("the change has no 'after'")
        data = event.after
        new_key = _key_in(data, keys)
        if new_key is None:
            new_key = _key_in(event.key, keys)
            if new_key is None:
                raise InvalidEvent(f"the change has no key ({', '.join(keys)})")
            data = data | new_key
        changes = [_Change(data, False, position, commit_time_ms)]
        if event.operation == "u":
            old_key = _key_in(event.before, keys) or _key_in(event.key, keys)
            if old_key is not None and _is_other(old_key, new_key):
                changes.insert(0, _Change(old_key, True, position, commit_time_ms))
        return changes

    def _truncation(self, position: str, commit_time_ms: int | None) -> list[_Change]:
        if self.decoding.sequence_by == "offset":
            raise InvalidEvent("a truncate needs positions: offsets of one partition say nothing of the others")
        if any(key not in self.decoding.columns for key in self.decoding.keys):
            return []  # the table has never had a row
        return [_Change({}, True, position, commit_time_ms)]

    def _position(self, event: ChangeEvent, offset: int) -> str:
        if self.decoding.sequence_by == "offset":
            return encode_position(offset)
        if event.position is None:
            raise InvalidEvent("the change has no position")
        return encode_position(event.position)

    def _needed_columns(self, event: ChangeEvent, changes: Sequence[_Change]) -> str | None:
        """As JSON, the columns that the event has and the table has not, or has too narrow.

        Key columns are among them, wherever the event has their values: a row cannot be without.
        """
        asked: Columns = {}
        for change in changes if event.columns is None or self.unknown_keys else ():
            for name in change.data if event.columns is None else self.unknown_keys:
                if name not in self.decoding.columns and (found := type_of(change.data.get(name))) is not None:
                    asked[name] = found
        if event.columns is None:
            return self._beyond_known(asked) if asked else None
        # One answer for all events of a version, which is found by what it declares.
        declared = f"{event.columns}{asked}" if asked else str(event.columns)
        if declared not in self.checked_schemas:
            wanted = {str(name): str(kind) for name, kind in event.columns.items() if self.decoding.wants(str(name))}
            asked |= {name: type_named(kind) for name, kind in wanted.items()}
            self.checked_schemas[declared] = self._beyond_known(asked)
        return self.checked_schemas[declared]

    def _beyond_known(self, asked: Columns) -> str | None:
        known = self.decoding.columns
        wanted = {name: kind for name, kind in asked.items() if self.decoding.wants(name)}
        for name in wanted.keys() - known.keys():
            check_name(name, [*known, *wanted])
        together = merged(known, wanted)
        check_keys(self.decoding.keys, known, together)
        return None if together == known else json.dumps(wanted)

    def _data_columns(self, changes: Sequence[_Change | None], outcomes: list[_Outcome]) -> list[pa.Array]:
        """Each column by itself. A value that does not fit makes its row an error, and no other."""
        columns = []
        for name, type_name in self.decoding.columns.items():
            values = [None if change is None else change.data.get(name) for change in changes]
            make = key_column_of if name in self.decoding.keys else column_of
            try:
                columns.append(make(values, type_name))
            except DoesNotFit:
                for index, value in enumerate(values):
                    reason = _misfit(name, value, type_name)
                    if reason is not None:
                        values[index] = None
                        if not any(outcomes[index]):  # a row that needs a wider column is decoded again
                            outcomes[index] = (reason, None)
                columns.append(make(values, type_name))
        return columns


def _refuse_whole(outcomes: list[_Outcome], places: Sequence[int]) -> None:
    """A message of two rows, one of which does not fit, changes nothing."""
    refused = {place: outcome for place, outcome in zip(places, outcomes, strict=True) if outcome[0] is not None}
    if refused:
        outcomes[:] = [refused.get(place, outcome) for place, outcome in zip(places, outcomes, strict=True)]


def _misfit(name: str, value: object, type_name: str) -> str | None:
    try:
        column_of([value], type_name)
    except DoesNotFit as error:
        return _shortened(f"column {name!r}: {error}")
    return None


def _shortened(reason: str) -> str:
    """What is wrong with a message may quote from it, and it may be long."""
    return reason if len(reason) <= MOST_REASON_CHARACTERS else f"{reason[:MOST_REASON_CHARACTERS]}..."


def _key_in(row: Mapping[str, Any] | None, keys: Sequence[str]) -> Row | None:
    if row is None:
        return None
    found = {}
    for name in keys:
        value = row.get(name)
        if value is None or value != value:  # what is not a number equals nothing, not even itself
            return None
        found[name] = value
    return found


def _is_other(old_key: Row, new_key: Row) -> bool:
    """Decimals may differ where floats do not. That a key is freed and taken at once does no harm."""
    pairs = [(old, new_key[name]) for name, old in old_key.items()]
    written = [(old.text, new.text) for old, new in pairs if type(old) is type(new) is WrittenFloat]
    return old_key != new_key or any(old != new for old, new in written)


_DECODE_JSON = json.JSONDecoder().decode
_DECODE_EXACTLY = json.JSONDecoder(parse_float=WrittenFloat).decode


def _parsed(
    values: Sequence[bytes | None], decode_json: Callable[[str], object]
) -> Iterator[tuple[object, str | None]]:
    """Each value as JSON, or why it is none."""
    for value in values:
        try:
            yield (None if value is None else decode_json(value.decode())), None
        except (ValueError, RecursionError):
            yield _parsed_with_care(value or b"")


def _parsed_with_care(value: bytes) -> tuple[object, str | None]:
    """What is not plain UTF-8 may still be JSON in another encoding."""
    try:
        return json.loads(value, parse_float=WrittenFloat), None
    except (ValueError, RecursionError) as error:
        return None, f"the message is no JSON: {error}"
