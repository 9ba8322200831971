"""How a table of changes lies on disk, and what is written down about it.

`PATH` is a plain Delta table, as of the last fold: any Delta reader reads it. `PATH__changes` is a Delta table of the
changes since, appended batch by batch, with the offsets of the topic in the same commits. Changes belong to a
generation; a fold closes the open one and applies all closed ones to the table, some buckets of keys at a time, then
replaces them by what they still mean: the tombstones of deleted keys.

    appends to generation 7   ->   fold of 7, bucket by bucket   ->   7 shrinks to its tombstones
                                   appends go to generation 8

The progress of a fold is an app transaction of each bucket in the commit that changes the bucket, or one for all where
one commit folds them all. A change that is applied twice does nothing, so a fold may be cut at any point and go on.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ottla.pipelines.tables.columns import Columns, arrow_type, merged, spark_type
from ottla.pipelines.tables.decode import CHANGE_FIELDS
from ottla.pipelines.tables.resolve import HISTORY_FIELDS, data_columns

BUCKET = "_bucket"
GENERATION = "_generation"
DEFAULT_BUCKETS = 16
FOLDED = "ottla:folded"
FOLD_OF_ALL = "ottla:fold"
# The generation that appends go to, in every commit of an append. A fold raises it before it reads what it folds: a
# writer that does not know of the fold is fenced.
OPEN = "ottla:open"
# The generation through which a table that was made anew will be folded: one that has no changes, so that no other
# fold goes through it. It is written down before the plain table is replaced. Until the changes are, too, and `FOLDED`
# has come up to it, the one does not belong to the other.
REPLACING = "ottla:replacing"
_OFFSET = "ottla:offset:"
_NEVER = -1
_BUCKET_FIELD = pa.field(BUCKET, pa.int32())
_GENERATION_FIELD = pa.field(GENERATION, pa.int32())
_POSITION_FIELD = pa.field("_position", pa.string())


class TableRefused(Exception):
    """The table cannot be used as asked; the text says why."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What is fixed when a table is made. `tracked` are the columns of which a history keeps versions; None: all."""

    keys: tuple[str, ...]
    scd_type: int = 1
    buckets: int = DEFAULT_BUCKETS
    tracked: tuple[str, ...] | None = None

    @property
    def is_history(self) -> bool:
        return self.scd_type == 2

    def base_schema(self, columns: Columns) -> pa.Schema:
        return pa.schema([*_data_fields(columns), *self.base_fields(), _BUCKET_FIELD])

    def base_fields(self) -> list[pa.Field]:
        return HISTORY_FIELDS if self.is_history else [_POSITION_FIELD]

    def changes_schema(self, columns: Columns) -> pa.Schema:
        return pa.schema([*_data_fields(columns), *CHANGE_FIELDS, _BUCKET_FIELD, _GENERATION_FIELD])

    def read_schemas(self, base: pa.Schema, changes: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
        """To read both parts in: rows with the columns that so far only changes have, and changes.

        Keys have no type until a change comes; there are no rows either.
        """
        known = columns_of(base)
        changed = {key: known.get(key, "string") for key in self.keys} | columns_of(changes)
        return self.base_schema(merged(known, changed)), self.changes_schema(changed)

    def to_configuration(self) -> dict[str, str]:
        return {
            "ottla.keys": json.dumps(self.keys),
            "ottla.scd_type": str(self.scd_type),
            "ottla.buckets": str(self.buckets),
            "ottla.tracked": json.dumps(self.tracked),
        }

    @classmethod
    def from_configuration(cls, configuration: Mapping[str, str | None]) -> Layout | None:
        """None for a Delta table that is not one of ours."""
        keys = configuration.get("ottla.keys")
        if keys is None:
            return None
        tracked = json.loads(configuration.get("ottla.tracked") or "null")
        return cls(
            tuple(json.loads(keys)),
            int(configuration.get("ottla.scd_type") or 1),
            int(configuration.get("ottla.buckets") or DEFAULT_BUCKETS),
            None if tracked is None else tuple(tracked),
        )


def _data_fields(columns: Columns) -> list[pa.Field]:
    return [pa.field(name, arrow_type(type_name)) for name, type_name in columns.items()]


def columns_of(schema: pa.Schema) -> Columns:
    """The columns of the source's table in a schema of ours."""
    return {name: spark_type(schema.field(name).type) for name in data_columns(schema)}


def changes_path(path: str) -> str:
    return f"{path.rstrip('/')}__changes"


def offset_id(topic: str, partition: int) -> str:
    """The app transaction whose version is the last offset of a partition that the table has."""
    return f"{_OFFSET}{topic}:{partition}"


def place_of(app_id: str) -> tuple[str, int] | None:
    """The partition whose offset an app transaction holds; None for one of another kind."""
    if not app_id.startswith(_OFFSET):
        return None
    topic, _, partition = app_id.removeprefix(_OFFSET).rpartition(":")
    return topic, int(partition)


def tombstones_id(generation: int) -> str:
    """The app transaction whose version is when the tombstones of a generation were first looked at, in seconds."""
    return f"ottla:tombstones:{generation}"


def fold_id(bucket: int) -> str:
    """The app transaction whose version is the last generation that the bucket of the table has."""
    return f"ottla:fold:{bucket}"


def folded_through(version_of: Callable[[str], int | None], bucket: int) -> int:
    """The last generation that a bucket of the plain table has, -1 if none; by a fold of its own or by one of all."""
    return max(_number(version_of(fold_id(bucket))), _number(version_of(FOLD_OF_ALL)))


def is_half_replaced(version_of: Callable[[str], int | None], base_version_of: Callable[[str], int | None]) -> bool:
    """Whether the plain table is new and the changes, of which `version_of` tells, are still those of the old one."""
    replacing, folded = (_number(version_of(name)) for name in (REPLACING, FOLDED))
    return folded < replacing == folded_through(base_version_of, 0)


def check_whole(
    path: str, version_of: Callable[[str], int | None], base_version_of: Callable[[str], int | None]
) -> None:
    if is_half_replaced(version_of, base_version_of):
        raise TableRefused(
            f"a rebuild of {path} was cut before it was complete: 'ottla pipeline rebuild' makes it whole"
        )


def _number(version: int | None) -> int:
    return _NEVER if version is None else version


def bucket_of(key: Sequence[object], buckets: int) -> int:
    """The bucket of a key: CRC-32 of its parts as text. Spark's `crc32` of the same text gives the same."""
    return zlib.crc32("\x00".join(map(str, key)).encode()) % buckets
