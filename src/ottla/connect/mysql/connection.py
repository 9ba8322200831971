"""Connections to MariaDB and MySQL: one for queries, one that the binlog comes through."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pymysql
from pymysql.constants import FIELD_TYPE

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql.binlog import ROTATE, Place

BINLOG_DUMP, REGISTER_SLAVE = 0x12, 0x15
RECEIVE_BYTES = 1 << 20
LARGEST_PACKET = 0xFFFFFF
READ_LOG_ERROR = 1236
FORMAT_DESCRIPTION, CRC32 = 15, 1
PROBE_SERVER_ID = 0x7FFFFFFE
HEARTBEAT_SECONDS = 1
DEAD_SECONDS = 30.0
"""Without even a heartbeat for so long, the connection is dead."""
_PERMANENT = (1044, 1045, 1049, 1142, 1227)


class Address(NamedTuple):
    host: str
    port: int
    user: str
    password: str

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Server(NamedTuple):
    """Who answers."""

    version: str
    is_mariadb: bool
    identity: str
    has_lower_names: bool = False
    """Whether it keeps names of tables in lower case, however they are written."""


class SqlConnection:
    """For queries. All values come as bytes, for the types of columns are known from elsewhere."""

    def __init__(self, address: Address) -> None:
        self._connection = _connect(address)
        self.query("SET SESSION time_zone = '+00:00'")
        self.query("SET NAMES utf8mb4")

    def query(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._connection.cursor() as cursor:
            cursor.execute(statement, tuple(arguments) or None)
            return list(cursor.fetchall())

    def texts(self, statement: str, arguments: Sequence[Any] = ()) -> list[tuple[str, ...]]:
        return [
            tuple("" if value is None else value.decode() for value in row) for row in self.query(statement, arguments)
        ]

    def variable(self, name: str) -> str | None:
        """None: this server has no such setting."""
        found = self.texts("SHOW GLOBAL VARIABLES WHERE Variable_name = %s", (name,))
        return found[0][1] if found else None

    def server(self) -> Server:
        version = self.texts("SELECT VERSION()")[0][0]
        uuid = self.variable("server_uuid") or self.variable("server_uid") or ""
        identity = f"{self.variable('server_id')}/{uuid}"
        return Server(version, "mariadb" in version.lower(), identity, self.variable("lower_case_table_names") == "1")

    def end_of_binlog(self) -> Place:
        """Where the next event will be."""
        file, position, *_ = self._binlog_status()
        return Place(file, int(position))

    def binlog_filters(self) -> tuple[list[str], list[str]]:
        """The databases that the binlog is for, where not all are (binlog_do_db), and those left out of it."""
        _, _, only, ignored, *_ = self._binlog_status()
        return [name for name in only.split(",") if name], [name for name in ignored.split(",") if name]

    def _binlog_status(self) -> tuple[str, ...]:
        try:
            rows = self.texts("SHOW MASTER STATUS")
        except pymysql.err.ProgrammingError:  # MySQL 8.4 has another name for it
            rows = self.texts("SHOW BINARY LOG STATUS")
        if not rows:
            raise ConnectorRefused("the server writes no binlog: set log_bin, and start it again")
        return rows[0]

    def is_replica(self) -> bool:
        """Whether it copies another server; False where the user may not know."""
        for statement in ("SHOW ALL SLAVES STATUS", "SHOW REPLICA STATUS"):  # of MariaDB, of MySQL
            with contextlib.suppress(pymysql.Error):
                return bool(self.query(statement))
        return False

    def binlogs(self) -> dict[str, int]:
        """The files that are there, and their sizes."""
        return {row[0]: int(row[1]) for row in self.texts("SHOW BINARY LOGS")}

    def collations(self) -> dict[int, str]:
        """The character set of each collation, by its number."""
        found = self.texts("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL")
        # In MariaDB the newer ones belong to several character sets, and have their numbers elsewhere.
        with contextlib.suppress(pymysql.Error):
            found += self.texts(
                "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY"
            )
        return {int(number): name for number, name in found if number and name}

    def characters(self) -> dict[str, str]:
        """The 256 characters of each character set of one byte, as this server knows them."""
        names = self.texts("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS WHERE MAXLEN = 1")
        every_byte = bytes(range(256)).hex()
        found = {}
        for (name,) in names:
            if name not in ("binary", "ascii"):
                ((text,),) = self.texts(f"SELECT CONVERT(_{name} x'{every_byte}' USING utf8mb4)")
                found[name] = text
        return {name: text for name, text in found.items() if len(text) == 256}

    def holds_transaction(self, place: Place, gtid: str, *, is_mariadb: bool) -> bool:
        """Whether the binlog has that transaction before a place; True where the server cannot say."""
        if is_mariadb:
            ((found,),) = self.texts("SELECT BINLOG_GTID_POS(%s, %s)", (place.file, place.position))
            return not found or gtid in found.split(",")
        if gtid.startswith(place.file.rpartition(".")[0]):  # a place, where there are no GTIDs
            return True
        return self.texts("SELECT GTID_SUBSET(%s, @@GLOBAL.gtid_executed)", (gtid,)) == [("1",)]

    def may_follow(self) -> bool:
        """Whether the user has the right to be sent the binlog. Registering is all that it takes to know."""
        register = struct.pack("<IBBBHII", PROBE_SERVER_ID, 0, 0, 0, 0, 0, 0)
        try:
            self._connection._execute_command(REGISTER_SLAVE, register)
            self._connection._read_ok_packet()
        except pymysql.err.OperationalError as error:
            if error.args[0] in _PERMANENT:
                return False
            raise
        return True

    def break_off(self) -> None:
        """From another thread: a query that waits for its answer fails at once."""
        with contextlib.suppress(OSError, AttributeError):
            self._connection._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.close()


def _connect(address: Address) -> Any:
    try:
        return pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            charset="utf8mb4",
            autocommit=True,
            use_unicode=False,
            conv={**pymysql.converters.encoders, FIELD_TYPE.BIT: bytes},
            connect_timeout=10,
        )
    except pymysql.err.OperationalError as error:
        if error.args and error.args[0] in _PERMANENT:
            raise ConnectorRefused(f"{address}: {error.args[1]}") from None
        raise


class BinlogConnection:
    """The binlog from a place on, event by event. Their checksums are compared and taken off."""

    def __init__(
        self, address: Address, connector: str, start: Place | str, *, is_mariadb: bool,
        wake: socket.socket | None = None,
    ) -> None:  # fmt: skip
        """`start` is a place, or a GTID behind which to begin. `wake` ends a wait as soon as it can be read."""
        self._connection = _connect(address)
        self._server_id = (zlib.crc32(connector.encode()) | 1) & 0x7FFFFFFF
        self._start = start
        self._is_mariadb = is_mariadb
        self._wake = wake
        self._poll = select.poll()
        self._buffer = bytearray()
        self._at = 0
        self._silence = 0.0
        self._has_checksums = False
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum")
            cursor.execute(f"SET @master_heartbeat_period = {HEARTBEAT_SECONDS * 1_000_000_000}")
            if self._is_mariadb:
                cursor.execute("SET @mariadb_slave_capability = 4")
            if isinstance(self._start, str):
                if not self._is_mariadb:
                    raise ConnectorRefused("to begin at a GTID is for MariaDB; give FILE:POSITION")
                cursor.execute("SET @slave_connect_state = %s", (self._start,))
                cursor.execute("SET @slave_gtid_strict_mode = 1")
        register = struct.pack("<IBBBHII", self._server_id, 0, 0, 0, 0, 0, 0)
        self._connection._execute_command(REGISTER_SLAVE, register)
        self._connection._read_ok_packet()
        file, position = ("", 4) if isinstance(self._start, str) else self._start
        dump = struct.pack("<IHI", position, 0, self._server_id) + file.encode()
        self._connection._execute_command(BINLOG_DUMP, dump)
        self._socket: socket.socket = self._connection._sock
        self._socket.settimeout(DEAD_SECONDS)
        for watched in (self._socket, self._wake):
            if watched is not None:
                self._poll.register(watched, select.POLLIN)

    def events(self, wait_seconds: float) -> Iterator[bytes]:
        """What is there; waits so long for the first. Empty if nothing came, or something else has."""
        packet = self._packet()
        if packet is None and self._receive(wait_seconds):
            packet = self._packet()
        while packet is not None:
            yield self._event(packet)
            packet = self._packet()

    def _event(self, packet: bytes) -> bytes:
        if packet[0] == 0:
            return self._checked(packet[1:])
        if packet[0] == 0xFF:
            code = int.from_bytes(packet[1:3], "little")
            text = packet[9:].decode("utf-8", "replace")
            if code == READ_LOG_ERROR:
                raise ConnectorRefused(
                    f"the server cannot give the binlog from {self._start} on: {text}; 'ottla connect reset' begins "
                    "with a new snapshot, and a longer binlog_expire_logs_seconds keeps it from happening again"
                )
            raise OSError(f"the server ended the binlog: {text} ({code})")
        raise OSError("the server ended the binlog: another reader has the same server id, or it is shutting down")

    def _checked(self, event: bytes) -> bytes:
        """Without the checksum, which is compared. The description of a file says whether its events have one."""
        kind = event[4]
        if kind == FORMAT_DESCRIPTION:
            self._has_checksums = event[-5] == CRC32
            return event
        if kind == ROTATE and not int.from_bytes(event[13:17], "little"):  # made up for us, before any description
            return event[:-4] if zlib.crc32(event[:-4]) == int.from_bytes(event[-4:], "little") else event
        if not self._has_checksums:
            return event
        if zlib.crc32(memoryview(event)[:-4]) != int.from_bytes(event[-4:], "little"):
            raise OSError("an event of the binlog has a wrong checksum: it was damaged on the way, or on the disk")
        return event[:-4]

    def _packet(self) -> bytes | None:
        """The next whole packet in the buffer. Those of 16 MB and more come in parts."""
        parts = []
        at = self._at
        while True:
            if len(self._buffer) - at < 4:
                return None
            size = self._buffer[at] | self._buffer[at + 1] << 8 | self._buffer[at + 2] << 16
            if len(self._buffer) - at - 4 < size:
                return None
            parts.append(bytes(memoryview(self._buffer)[at + 4 : at + 4 + size]))
            at += 4 + size
            if size < LARGEST_PACKET:
                self._at = at
                return parts[0] if len(parts) == 1 else b"".join(parts)

    def _receive(self, wait_seconds: float) -> bool:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0
        ready = [file for file, _ in self._poll.poll(wait_seconds * 1000)]
        if self._wake is not None and self._wake.fileno() in ready:
            self._wake.recv(RECEIVE_BYTES)
        if self._socket.fileno() not in ready:
            if not ready:
                self._silence += wait_seconds
            if self._silence > DEAD_SECONDS:
                raise OSError(f"the server has said nothing for {DEAD_SECONDS:g} s")
            return False
        received = self._socket.recv(RECEIVE_BYTES)
        if not received:
            raise OSError("the server has closed the connection")
        self._silence = 0.0
        self._buffer += received
        return True

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._connection._force_close()
