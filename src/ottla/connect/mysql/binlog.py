"""The events of a binlog, without I/O: bytes in, what happened out."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql.statements import Statement
from ottla.connect.mysql.table import Table
from ottla.connect.mysql.values import Decode, utf8

QUERY, ROTATE, XID, EXECUTE_LOAD, TABLE_MAP, INCIDENT, HEARTBEAT = 2, 4, 16, 18, 19, 26, 27
GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS, XA_PREPARE, PARTIAL_UPDATE, PAYLOAD, HEARTBEAT_2, GTID_TAGGED = (
    33, 34, 35, 38, 39, 40, 41, 42,
)  # fmt: skip
MARIADB_GTID, QUERY_COMPRESSED = 162, 165
# By the number of the event: what was done, and whether it is of version 2, and compressed.
ROWS = {
    23: ("c", False, False), 24: ("u", False, False), 25: ("d", False, False),
    30: ("c", True, False), 31: ("u", True, False), 32: ("d", True, False),
    166: ("c", False, True), 167: ("u", False, True), 168: ("d", False, True),
    169: ("c", True, True), 170: ("u", True, True), 171: ("d", True, True),
}  # fmt: skip
# Stop, variables of statements, blocks of files to load, description, ignorable, text of a statement, of MySQL's GTIDs
# and group replication; text of a statement, checkpoint, list of GTIDs and encryption of MariaDB.
WITHOUT_ROWS = {3, 5, 9, 11, 13, 14, 15, 17, 28, 29, 35, 36, 37, 160, 161, 163, 164}
HEADER_BYTES = 19
POSITIONS = 1 << 32
"""So many of a file can be told by an event, or asked for."""
STANDALONE, IGNORABLE = 1, 0x80
# Variables that a statement has with it: flags, modes, counting up, character sets; and a name with its length.
_SIZED_VARIABLES, CHARACTER_SETS, CATALOG = {0: 4, 1: 8, 3: 4}, 4, 6
NO_DECODES: Mapping[int, Decode | None] = {}
_HEADER = struct.Struct("<IBIIIH")
_DML = ("INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH", "CALL", "DO")
_DDL = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")


class Place(NamedTuple):
    """A position in the binlog. Those of one server are in order."""

    file: str
    position: int

    @property
    def order(self) -> tuple[int, int]:
        return file_number(self.file), self.position

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


def file_number(file: str) -> int:
    return int(file.rpartition(".")[2] or 0)


class RowChanges(NamedTuple):
    """Rows of one event: (before, after, key before, key after) each, as JSON."""

    table: Table
    operation: str
    rows: list[tuple[bytes | None, bytes | None, bytes | None, bytes | None]]
    end_position: int
    size_bytes: int


class Begun(NamedTuple):
    """A transaction begins."""

    transaction: str
    time_seconds: int
    start: Place


class Committed(NamedTuple):
    """A transaction, or whatever stands between transactions, is over: a place to go on from."""

    place: Place
    transaction: str | None


class Ddl(NamedTuple):
    """A statement that changes tables."""

    statement: Statement
    text: str
    database: str
    time_seconds: int
    place: Place


Happened = RowChanges | Begun | Committed | Ddl


class BinlogReader:
    """Events in, in their order. `find_table` says what a table map means; None: nobody wants its rows."""

    def __init__(
        self, start: Place, *, is_mariadb: bool, find_table: Callable[[bytes], Table | None],
        is_captured: Callable[[str], bool], decodes: Mapping[int, Decode | None] = NO_DECODES,
        has_lower_names: bool = False,
    ) -> None:  # fmt: skip
        """`decodes`: of character sets, by the number of a collation; what is not there is UTF-8."""
        self.place = start
        self.transaction: str | None = None
        self.time_seconds = 0
        self._is_mariadb = is_mariadb
        self._find_table = find_table
        self._is_captured = is_captured
        self._decodes = decodes
        self._has_lower_names = has_lower_names
        self._tables: dict[int, Table | None] = {}
        self._last_position = start.position
        self._is_open = False
        self._is_standalone = False
        self._is_begun = False

    def read(self, event: bytes) -> Iterator[Happened]:
        """What one event says. It comes without its checksum."""
        seconds, kind, server, _, low_position, flags = _HEADER.unpack_from(event)
        end_position = self._whole(low_position)
        if kind in ROWS:
            yield from self._read_rows(kind, event, end_position)
        elif kind == TABLE_MAP:
            number = int.from_bytes(event[HEADER_BYTES : HEADER_BYTES + 6], "little")
            self._tables[number] = self._find_table(event[HEADER_BYTES + 8 :])
        elif kind == ROTATE:
            position = int.from_bytes(event[HEADER_BYTES : HEADER_BYTES + 8], "little")
            self.place = Place(event[HEADER_BYTES + 8 :].rstrip(b"\0").decode(), position)
            self._last_position = position
            self._tables.clear()
        elif kind == XID:
            yield self._commit(end_position)
        elif kind in (MARIADB_GTID, GTID, ANONYMOUS_GTID, GTID_TAGGED):
            yield self._begin(kind, event, server, seconds)
        elif kind in (QUERY, QUERY_COMPRESSED, EXECUTE_LOAD):
            yield from self._read_query(kind, event, end_position, seconds)
        elif kind == XA_PREPARE:
            raise ConnectorRefused(f"the binlog at {self.place} holds an XA transaction, whose rows may be rolled back "
                                   "later: have them committed without XA PREPARE, and 'ottla connect reset' for a new "
                                   "snapshot")  # fmt: skip
        elif kind in (PAYLOAD, PARTIAL_UPDATE):
            setting = "binlog_transaction_compression" if kind == PAYLOAD else "binlog_row_value_options"
            raise ConnectorRefused(f"the binlog at {self.place} was written with {setting}: its rows would be lost; "
                                   f"turn {setting} off, and 'ottla connect reset'")  # fmt: skip
        elif kind == INCIDENT:
            raise ConnectorRefused(f"the binlog at {self.place} says that the server has lost changes before they were "
                                   "written there; 'ottla connect reset' begins with a new snapshot")  # fmt: skip
        elif kind in (HEARTBEAT, HEARTBEAT_2):
            return
        elif kind not in WITHOUT_ROWS and not flags & IGNORABLE:
            raise ConnectorRefused(f"the binlog at {self.place} holds events of kind {kind}, which are not known: rows "
                                   "may be lost; 'ottla connect reset' begins with a new snapshot")  # fmt: skip
        elif not self._is_open and end_position:
            yield self._pass(end_position)

    def _whole(self, low_position: int) -> int:
        """A position in the file: an event says 32 bits of it, and a large transaction makes the file longer. 0: none.

        No event is as long as half of what 32 bits count.
        """
        if not low_position:
            return 0
        last = self._last_position
        position = last & -POSITIONS | low_position
        if position < last - POSITIONS // 2:
            position += POSITIONS
        self._last_position = position
        return position

    def _pass(self, end_position: int) -> Committed:
        self.place = Place(self.place.file, end_position)
        return Committed(self.place, None)

    def _begin(self, kind: int, event: bytes, server: int, seconds: int) -> Begun:
        at = HEADER_BYTES
        if kind == MARIADB_GTID:
            sequence, domain, flags = struct.unpack_from("<QIB", event, at)
            self.transaction = f"{domain}-{server}-{sequence}"
            self._is_standalone = bool(flags & STANDALONE)
        else:
            digits = event[at + 1 : at + 17].hex()
            number = int.from_bytes(event[at + 17 : at + 25], "little")
            source = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
            self.transaction = f"{source}:{number}" if kind == GTID else str(self.place)
            self._is_standalone = False
        self._is_open = True
        self._is_begun = False
        self.time_seconds = seconds
        return Begun(self.transaction, seconds, self.place)

    def _commit(self, end_position: int) -> Committed:
        self._is_open = False
        self._tables.clear()
        self.place = Place(self.place.file, end_position)
        return Committed(self.place, self.transaction)

    # Statements.

    def _read_query(self, kind: int, event: bytes, end_position: int, seconds: int) -> Iterator[Happened]:
        _, _, name_bytes, _, status_bytes = struct.unpack_from("<IIBHH", event, HEADER_BYTES)
        at = HEADER_BYTES + (26 if kind == EXECUTE_LOAD else 13)
        decode = self._decodes.get(client_collation(event[at : at + status_bytes])) or utf8
        at += status_bytes
        database = event[at : at + name_bytes].decode("utf-8", "replace")
        text = event[at + name_bytes + 1 :]
        if kind == QUERY_COMPRESSED:
            text = decompress(text)
        if text == b"BEGIN":
            self._is_begun = True
            return
        statement = decode(text)
        read = Statement(statement, database, has_lower_names=self._has_lower_names)
        first = read.kind
        if first in _DML and any(self._is_captured(each) for each in read.databases):
            raise ConnectorRefused(
                f"the binlog at {self.place} holds a statement in place of rows ({first} ...): set binlog_format=ROW "
                "for all sessions, and 'ottla connect reset' for a new snapshot"
            )
        if first in _DDL:
            yield Ddl(read, statement, database, seconds, Place(self.place.file, end_position))
        if first == "SAVEPOINT" or (first == "ROLLBACK" and read.has_more):
            return
        # A CREATE TABLE ... SELECT has rows behind it in the same transaction.
        is_alone = self._is_standalone or not (self._is_mariadb or self._is_begun)
        if first in ("COMMIT", "ROLLBACK") or not self._is_open or is_alone:
            yield self._commit(end_position)

    # Rows.

    def _read_rows(self, kind: int, event: bytes, end_position: int) -> Iterator[RowChanges]:
        operation, is_version_2, is_compressed = ROWS[kind]
        at = HEADER_BYTES
        table = self._tables.get(int.from_bytes(event[at : at + 6], "little"))
        if table is None:
            return
        at += 8
        if is_version_2:
            at += int.from_bytes(event[at : at + 2], "little")
        at += _length_bytes(event[at])
        size = len(table.all_present)
        for _ in range(2 if operation == "u" else 1):
            if not _has_all(event[at : at + size], table.all_present):
                raise ConnectorRefused(
                    f"table {table.full_name}: the binlog at {self.place} has only some columns of its rows; set "
                    "binlog_row_image=FULL on the server, and 'ottla connect reset' for a new snapshot"
                )
            at += size
        if is_compressed:
            event, at = decompress(event[at:]), 0
        rows = list(_rows(table, operation, event, at))
        yield RowChanges(table, operation, rows, end_position, len(event))


def _rows(
    table: Table, operation: str, data: bytes, at: int
) -> Iterator[tuple[bytes | None, bytes | None, bytes | None, bytes | None]]:
    image, present, end = table.image, table.all_present, len(data)
    decode = image.decode
    while at < end:
        row, key = decode(data, at, present)
        at = image.position
        if operation == "c":
            yield None, row, None, key
        elif operation == "d":
            yield row, None, key, None
        else:
            after, after_key = decode(data, at, present)
            at = image.position
            yield row, after, key, after_key


def _has_all(present: bytes, wanted: bytes) -> bool:
    """MySQL sets the bits behind those of the last column, too; MariaDB does not."""
    if present == wanted:
        return True
    bits = int.from_bytes(wanted, "little")
    return int.from_bytes(present, "little") & bits == bits


def client_collation(status: bytes) -> int:
    """In what a statement was written, by the number of its collation: from the variables in front of it. 0: unknown.

    They come in a fixed order, and those before it have sizes that are known.
    """
    at = 0
    while at < len(status):
        kind = status[at]
        at += 1
        if kind == CHARACTER_SETS:
            return int.from_bytes(status[at : at + 2], "little")
        if kind in _SIZED_VARIABLES:
            at += _SIZED_VARIABLES[kind]
        elif kind == CATALOG:
            at += 1 + (status[at] if at < len(status) else 0)
        else:
            return 0
    return 0


def _length_bytes(first: int) -> int:
    return {0xFC: 3, 0xFD: 4, 0xFE: 9}.get(first, 1)


def decompress(data: bytes) -> bytes:
    """MariaDB's log_bin_compress: a byte that says how many follow with the length, the length, and zlib's bytes."""
    return zlib.decompress(data[1 + (data[0] & 7) :])
