"""The columns that each table has had, by version: kept in a compacted topic, in the transaction of the first change
that has them, so that a version means the same for ever."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ottla.connect.interface import SourceRecord


def topic_of(connector: str) -> str:
    return f"ottla-connect.{connector}.schemas"


class SchemaHistory:
    """Without I/O: records in, records out."""

    def __init__(self, connector: str) -> None:
        self.topic = topic_of(connector)
        self._versions: dict[str, dict[str, int]] = {}
        self._last: dict[str, int] = {}

    def replay(self, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in records:
            about = json.loads(key or b"{}")
            if "version" in about and value is not None:
                document = json.loads(value)
                self._keep(about["table"], about["version"], document["columns"], document["keys"])

    def version_of(
        self, table: str, columns: Mapping[str, str], keys: Sequence[str], position: Sequence[Any]
    ) -> tuple[int, list[SourceRecord]]:
        """The version of a table with these columns; and the record that says so, if it is a new one."""
        known = self._versions.get(table, {}).get(_shape(columns, keys))
        if known is not None:
            return known, []
        version = self._last.get(table, 0) + 1
        self._keep(table, version, columns, keys)
        value = {"columns": dict(columns), "keys": list(keys), "position": list(position)}
        key = {"table": table, "version": version}
        return version, [SourceRecord(self.topic, _json(value), _json(key), partition=0)]

    def statement(self, statement: str, database: str, time_ms: int, position: Sequence[Any]) -> SourceRecord:
        value = {"statement": statement, "database": database, "time": time_ms, "position": list(position)}
        return SourceRecord(self.topic, _json(value), _json({"statement_at": list(position)}), partition=0)

    def _keep(self, table: str, version: int, columns: Mapping[str, str], keys: Sequence[str]) -> None:
        self._versions.setdefault(table, {})[_shape(columns, keys)] = version
        self._last[table] = max(self._last.get(table, 0), version)


def _shape(columns: Mapping[str, str], keys: Sequence[str]) -> str:
    return json.dumps([list(columns.items()), list(keys)])


def _json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()
