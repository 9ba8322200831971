"""Changes as the values of messages: the pipeline's change event, or Debezium's envelope."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.connect.mysql.binlog import Place, file_number
from ottla.connect.mysql.values import quoted


class Described(Protocol):
    """A table, as its events are to name it."""

    full_name: str
    database: str
    name: str
    schema_json: bytes


class Stamp(NamedTuple):
    """When and where a change was made; the same for all rows of an event."""

    file: str
    position: int
    commit_time_ms: int
    transaction: str | None
    is_snapshot: bool = False


Make = Callable[[bytes, bytes | None, bytes | None, bytes | None, int], bytes]
"""Of operation, key, row before, row after and the number of the row in its event."""


class Envelope(Protocol):
    def bind(self, table: Described, stamp: Stamp) -> Make:
        """For all rows of one event: what is the same for them is put together once."""


class ChangeEnvelope:
    """docs/change-events.md, with the id of the transaction beside it."""

    def bind(self, table: Described, stamp: Stamp) -> Make:
        transaction = b"" if stamp.transaction is None else b',"transaction":' + quoted(stamp.transaction)
        place = b',"position":[%d,%d,' % (file_number(stamp.file), stamp.position)
        rest = b'],"commit_time":%d,"table":%s%s,"schema":%s}' % (
            stamp.commit_time_ms, quoted(table.full_name), transaction, table.schema_json,
        )  # fmt: skip

        def make(operation: bytes, key: bytes | None, before: bytes | None, after: bytes | None, row: int) -> bytes:
            return b'{"op":"%s","key":%s,"before":%s,"after":%s%s%d%s' % (
                operation, key or b"null", before or b"null", after or b"null", place, row, rest,
            )  # fmt: skip

        return make


class DebeziumEnvelope:
    """The envelope that Debezium's MySQL connector writes without its schema; values are as in change events."""

    def __init__(self, connector: str, server_id: str) -> None:
        self._name = quoted(connector)
        self._server_id = server_id.partition("/")[0].encode() or b"0"

    def bind(self, table: Described, stamp: Stamp) -> Make:
        gtid = b"null" if stamp.transaction is None else quoted(stamp.transaction)
        source = (
            b'{"version":"ottla","connector":"mysql","name":%s,"ts_ms":%d,"snapshot":"%s","db":%s,"sequence":null,'
            b'"table":%s,"server_id":%s,"gtid":%s,"file":%s,"pos":%d,"row":'
        ) % (
            self._name, stamp.commit_time_ms, b"true" if stamp.is_snapshot else b"false", quoted(table.database),
            quoted(table.name), self._server_id, gtid, quoted(stamp.file), stamp.position,
        )  # fmt: skip

        def make(operation: bytes, key: bytes | None, before: bytes | None, after: bytes | None, row: int) -> bytes:
            return (
                b'{"before":%s,"after":%s,"source":%s%d,"thread":null,"query":null},"op":"%s","ts_ms":%d,'
                b'"transaction":null}'
            ) % (before or b"null", after or b"null", source, row, operation, stamp.commit_time_ms)

        return make


def snapshot_stamp(high: Place, commit_time_ms: int) -> Stamp:
    return Stamp(high.file, high.position, commit_time_ms, None, is_snapshot=True)
