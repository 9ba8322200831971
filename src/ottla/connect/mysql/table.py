"""A table as the binlog describes it: columns, types, key; and how its rows become JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql import layout as image
from ottla.connect.mysql import values
from ottla.connect.mysql.binary_json import BinaryJson
from ottla.connect.mysql.layout import ColumnLayout
from ottla.connect.mysql.row_image import RowImage
from ottla.connect.mysql.values import Decode

# Types of columns, by MySQL's numbers.
TINY, SHORT, LONG, FLOAT, DOUBLE, TIMESTAMP, LONGLONG, INT24 = 1, 2, 3, 4, 5, 7, 8, 9
DATE, TIME, DATETIME, YEAR, NEWDATE, VARCHAR, BIT = 10, 11, 12, 13, 14, 15, 16
TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED, VARCHAR_COMPRESSED = 17, 18, 19, 140, 141
JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255

_ONE_BYTE_OF_METADATA = (FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, TIMESTAMP2, DATETIME2, TIME2, BLOB_COMPRESSED)
_TWO_BYTES_OF_METADATA = (BIT, NEWDECIMAL, VARCHAR, STRING, ENUM, SET, VAR_STRING, VARCHAR_COMPRESSED)
_NUMBERS = (TINY, SHORT, INT24, LONG, LONGLONG, NEWDECIMAL, FLOAT, DOUBLE, YEAR)
_TEXTS = (STRING, VAR_STRING, VARCHAR, BLOB, BLOB_COMPRESSED, VARCHAR_COMPRESSED)
_WHOLE = {TINY: 1, SHORT: 2, INT24: 3, LONG: 4, LONGLONG: 8}
_SPARK_WHOLE = {
    (TINY, False): "smallint", (SHORT, False): "smallint", (INT24, False): "int", (LONG, False): "int",
    (LONGLONG, False): "bigint", (TINY, True): "smallint", (SHORT, True): "int", (INT24, True): "int",
    (LONG, True): "bigint", (LONGLONG, True): "decimal(20,0)",
}  # fmt: skip
MOST_DECIMAL_DIGITS = 38
"""Of Spark's decimals. A wider one is a text."""


class MappedColumn(NamedTuple):
    name: str
    type: int
    metadata: int
    is_unsigned: bool
    collation: int | None
    choices: tuple[str, ...] = ()


_SEQUENCE = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip


class TableMap(NamedTuple):
    """What a TABLE_MAP event says."""

    database: str
    name: str
    columns: tuple[MappedColumn, ...]
    keys: tuple[int, ...]

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def is_sequence(self) -> bool:
        """Of MariaDB: its numbers are in the binlog like the row of a table."""
        return not self.keys and tuple(column.name for column in self.columns) == _SEQUENCE


class _Reader:
    def __init__(self, data: bytes, position: int) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        taken = self.data[self.position : self.position + size]
        self.position += size
        return taken

    def length(self) -> int:
        """A number as the protocol packs lengths."""
        first = self.take(1)[0]
        if first < 0xFB:
            return first
        return int.from_bytes(self.take({0xFC: 2, 0xFD: 3, 0xFE: 8}[first]), "little")

    def text(self) -> bytes:
        return self.take(self.length())

    @property
    def is_done(self) -> bool:
        return self.position >= len(self.data)


def read_table_map(body: bytes, *, is_mariadb: bool, decodes: Mapping[int, Decode | None]) -> TableMap:
    """`body` begins behind the table's id and flags. `decodes` are of the collations, by number."""
    reader = _Reader(body, 0)
    database = reader.take(reader.take(1)[0]).decode()
    reader.take(1)
    name = reader.take(reader.take(1)[0]).decode()
    reader.take(1)
    types = list(reader.take(reader.length()))
    metadata = _read_metadata(types, reader.text())
    reader.take((len(types) + 7) // 8)
    parts: dict[int, bytes] = {}
    while not reader.is_done:
        kind = reader.take(1)[0]
        parts[kind] = reader.text()
    types = [
        metadata[index] >> 8 if kind == STRING and metadata[index] >> 8 in (ENUM, SET) else kind
        for index, kind in enumerate(types)
    ]
    if 4 not in parts:
        raise ConnectorRefused(
            f"table {database}.{name}: its binlog has no column names; set binlog_row_metadata=FULL on the server, and "
            "'ottla connect reset' if such changes were written meanwhile"
        )
    names_reader = _Reader(parts[4], 0)
    names = [names_reader.text().decode() for _ in types]
    unsigned = _read_unsigned(types, parts.get(1, b""))
    texts = [index for index, kind in enumerate(types) if kind in _TEXTS or (is_mariadb and kind == GEOMETRY)]
    collations = _read_collations(texts, parts.get(2), parts.get(3))
    chosen = [index for index, kind in enumerate(types) if kind in (ENUM, SET)]
    choice_collations = _read_collations(chosen, parts.get(10), parts.get(11))
    choices = _read_choices(types, parts, {index: decodes.get(found) for index, found in choice_collations.items()})
    columns = tuple(
        MappedColumn(names[index], kind, metadata[index], unsigned.get(index, False), collations.get(index),
                     choices.get(index, ()))
        for index, kind in enumerate(types)
    )  # fmt: skip
    return TableMap(database, name, columns, _read_keys(parts))


def _read_metadata(types: Sequence[int], block: bytes) -> list[int]:
    found = []
    position = 0
    for kind in types:
        if kind in _ONE_BYTE_OF_METADATA:
            found.append(block[position])
            position += 1
        elif kind in _TWO_BYTES_OF_METADATA:
            first, second = block[position], block[position + 1]
            is_plain_number = kind in (VARCHAR, VAR_STRING, VARCHAR_COMPRESSED)
            found.append(first | second << 8 if is_plain_number else first << 8 | second)
            position += 2
        else:
            found.append(0)
    return found


def _read_unsigned(types: Sequence[int], bits: bytes) -> dict[int, bool]:
    numbers = [index for index, kind in enumerate(types) if kind in _NUMBERS]
    return {
        index: bool(bits[place >> 3] >> (7 - (place & 7)) & 1)
        for place, index in enumerate(numbers)
        if place >> 3 < len(bits)
    }


def _read_collations(columns: Sequence[int], common: bytes | None, each: bytes | None) -> dict[int, int]:
    """Either one for all with exceptions, or one for each."""
    if each is not None:
        reader = _Reader(each, 0)
        return {index: reader.length() for index in columns}
    if common is None:
        return {}
    reader = _Reader(common, 0)
    found = dict.fromkeys(columns, reader.length())
    while not reader.is_done:
        place = reader.length()
        found[columns[place]] = reader.length()
    return found


def _read_choices(
    types: Sequence[int], parts: Mapping[int, bytes], decodes: Mapping[int, Decode | None]
) -> dict[int, tuple[str, ...]]:
    found = {}
    for kind, part in ((SET, 5), (ENUM, 6)):
        reader = _Reader(parts.get(part, b""), 0)
        for index, each in enumerate(types):
            if each == kind:
                decode = decodes.get(index) or values.utf8
                found[index] = tuple(decode(reader.text()) for _ in range(reader.length()))
    return found


def _read_keys(parts: Mapping[int, bytes]) -> tuple[int, ...]:
    if 8 in parts:
        reader = _Reader(parts[8], 0)
        found = []
        while not reader.is_done:
            found.append(reader.length())
        return tuple(found)
    if 9 in parts:  # each with the length of its prefix
        reader = _Reader(parts[9], 0)
        found = []
        while not reader.is_done:
            found.append(reader.length())
            reader.length()
        return tuple(found)
    return ()


@dataclass(slots=True)
class Table:
    """A table as its changes are written. `declared` are types that the binlog does not tell: uuid, inet6, inet4."""

    full_name: str
    database: str
    name: str
    keys: tuple[str, ...]
    columns: dict[str, str]
    image: RowImage
    all_present: bytes
    schema_json: bytes = b""
    version: int = 0
    topic: str = ""
    is_wanted: bool = True


def make_table(
    mapped: TableMap, keys: Sequence[str] | None, declared: Mapping[str, str], decodes: Mapping[int, Decode | None]
) -> Table:
    """`keys` are chosen by the user where the table has no primary key."""
    names = [column.name for column in mapped.columns]
    chosen = mapped.keys
    if not chosen:
        missing = [key for key in keys or () if key not in names]
        if not keys or missing:
            what = f"it has no column {missing[0]}" if missing else "it has no primary key"
            raise ConnectorRefused(
                f"table {mapped.full_name}: {what}; name columns that are unique with "
                f'keys = {{"{mapped.full_name}" = ["COLUMN"]}}, or leave it out with exclude'
            )
        chosen = tuple(names.index(key) for key in keys)
    made = [make_column(column, declared.get(column.name, ""), decodes) for column in mapped.columns]
    return Table(
        mapped.full_name,
        mapped.database,
        mapped.name,
        tuple(names[index] for index in chosen),
        {column.name: spark for column, spark in made},
        RowImage([column for column, _ in made], chosen),
        _all_ones(len(names)),
    )


def _all_ones(count: int) -> bytes:
    return ((1 << count) - 1).to_bytes((count + 7) // 8, "little")


def make_column(column: MappedColumn, declared: str, decodes: Mapping[int, Decode | None]) -> tuple[ColumnLayout, str]:
    """How it is read, and its type in the words of change events."""
    name, kind, metadata = column.name, column.type, column.metadata
    if kind in _WHOLE:
        spark = _SPARK_WHOLE[kind, column.is_unsigned]
        how = image.WIDE_UNSIGNED if kind == LONGLONG and column.is_unsigned else image.UNSIGNED
        return ColumnLayout(name, how if column.is_unsigned else image.SIGNED, _WHOLE[kind]), spark
    if kind in (FLOAT, DOUBLE):
        is_float = kind == FLOAT
        return ColumnLayout(name, image.FLOAT if is_float else image.DOUBLE, 4 if is_float else 8), (
            "float" if is_float else "double"
        )
    if kind == NEWDECIMAL:
        precision, scale = metadata >> 8, metadata & 0xFF
        spark = f"decimal({precision},{scale})" if precision <= MOST_DECIMAL_DIGITS else "string"
        return ColumnLayout(name, image.DECIMAL, precision, scale), spark
    if kind == BIT:
        bits = (metadata & 0xFF) * 8 + (metadata >> 8)
        how, spark = (image.WIDE_BIT, "decimal(20,0)") if bits > 63 else (image.BIT, "bigint")
        return ColumnLayout(name, how, (bits + 7) // 8), spark
    if kind in (ENUM, SET):
        make = values.enum_of(column.choices) if kind == ENUM else values.set_of(column.choices)
        return ColumnLayout(name, image.CHOICE, metadata & 0xFF, 0, make), "string"
    if kind in _MOMENTS:
        how, size, spark = _MOMENTS[kind]
        return ColumnLayout(name, how, size, metadata if kind in (TIMESTAMP2, DATETIME2, TIME2) else 0), spark
    return _make_text(column, declared, decodes)


_MOMENTS = {
    DATE: (image.DATE, 3, "date"),
    NEWDATE: (image.DATE, 3, "date"),
    TIME: (image.TIME, 3, "string"),
    DATETIME: (image.DATETIME, 8, "timestamp"),
    TIMESTAMP: (image.TIMESTAMP, 4, "timestamp"),
    TIMESTAMP2: (image.TIMESTAMP2, 4, "timestamp"),
    DATETIME2: (image.DATETIME2, 5, "timestamp"),
    TIME2: (image.TIME2, 3, "string"),
    YEAR: (image.YEAR, 1, "smallint"),
}
_DECLARED = {"uuid": values.uuid_of, "inet6": values.inet6_of, "inet4": values.inet4_of}


def _make_text(column: MappedColumn, declared: str, decodes: Mapping[int, Decode | None]) -> tuple[ColumnLayout, str]:
    name, kind, metadata = column.name, column.type, column.metadata
    if kind == JSON:
        return ColumnLayout(name, image.OTHER, metadata, 0, BinaryJson().to_json), "string"
    if kind not in _TEXTS and kind != GEOMETRY:
        raise ConnectorRefused(f"column {name}: columns of type {kind} are not known")
    size, most = _length_of(kind, metadata)
    decode = None if column.collation is None or kind == GEOMETRY else decodes.get(column.collation)
    if declared in _DECLARED:
        return ColumnLayout(name, image.OTHER, size, 0, _DECLARED[declared]), "string"
    is_compressed = kind in (BLOB_COMPRESSED, VARCHAR_COMPRESSED)
    if decode is None:
        make = values.padded_base64(most) if kind == STRING else values.base64_of
        return ColumnLayout(name, image.OTHER, size, 0, values.decompressed(make) if is_compressed else make), "binary"
    if decode is values.utf8 and not is_compressed:
        return ColumnLayout(name, image.TEXT, size), "string"
    make = values.text_of(decode)
    return ColumnLayout(name, image.OTHER, size, 0, values.decompressed(make) if is_compressed else make), "string"


def _length_of(kind: int, metadata: int) -> tuple[int, int]:
    """How many bytes the length takes, and the most that the column holds."""
    if kind in (BLOB, GEOMETRY, BLOB_COMPRESSED):
        return metadata, 0
    most = metadata
    if kind == STRING:  # two bits of the length are in the type
        first = metadata >> 8
        most = (metadata & 0xFF) | ((first & 0x30) ^ 0x30) << 4
    return (1 if most < 256 else 2), most


def schema_json(version: int, columns: Mapping[str, str]) -> bytes:
    document = {"version": version, "columns": columns}
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
