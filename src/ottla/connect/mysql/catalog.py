"""Which tables there are, and what is in them, as information_schema tells."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence

from ottla.connect.interface import ConnectorRefused
from ottla.connect.mysql.connection import SqlConnection
from ottla.connect.mysql.snapshot import Column, TableToCopy

_OWN = ("mysql", "information_schema", "performance_schema", "sys")
DECLARED = ("uuid", "inet6", "inet4")


class TableChoice:
    """Which tables are wanted: patterns of DATABASE.TABLE, as `shop.*`."""

    def __init__(self, tables: Sequence[str], exclude: Sequence[str]) -> None:
        for pattern in (*tables, *exclude):
            if "." not in pattern:
                raise ValueError(f"tables are named DATABASE.TABLE, as in shop.orders or shop.*, not {pattern!r}")
        if not tables:
            raise ValueError("tables is empty: name some, as in shop.*")
        self._tables = tuple(tables)
        self._exclude = tuple(exclude)

    def wants(self, full_name: str) -> bool:
        database = full_name.partition(".")[0]
        if database in _OWN:
            return False
        is_chosen = any(fnmatch.fnmatchcase(full_name, pattern) for pattern in self._tables)
        return is_chosen and not any(fnmatch.fnmatchcase(full_name, pattern) for pattern in self._exclude)

    def may_want_of(self, database: str) -> bool:
        return any(fnmatch.fnmatchcase(database, pattern.partition(".")[0]) for pattern in self._tables)


class Catalog:
    """Asked anew after each statement that changes tables."""

    def __init__(
        self, sql: SqlConnection, choice: TableChoice, keys: Mapping[str, Sequence[str]], *, with_cascades: bool = False
    ) -> None:
        """`with_cascades`: tables are taken though foreign keys change their rows."""
        self._sql = sql
        self._choice = choice
        self._keys = keys
        self._with_cascades = with_cascades
        self._declared: dict[str, dict[str, str]] | None = None

    def forget(self) -> None:
        self._declared = None

    def table_names(self) -> list[str]:
        found = self._sql.texts(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE'"
        )
        names = (f"{database}.{name}" for database, name in found)
        return sorted(name for name in names if self._choice.wants(name))

    def why_lost(self) -> Iterator[str]:
        """What of the tables that are wanted would not be in the binlog, or not as it is in the tables."""
        only, ignored = self._sql.binlog_filters()
        databases = {name.partition(".")[0] for name in self.table_names()}
        for database in sorted(databases):
            if database in ignored or (only and database not in only):
                setting = "binlog_ignore_db" if database in ignored else "binlog_do_db"
                yield (
                    f"database {database} is left out of the binlog by {setting}, and its rows would be lost: change "
                    "that in the server's configuration, or leave its tables out with exclude"
                )
        versioned = self._sql.texts(
            "SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE = 'SYSTEM VERSIONED'"
        )
        for database, table in versioned:
            if self._choice.wants(f"{database}.{table}"):
                yield (
                    f"table {database}.{table} is system-versioned, and the binlog has its old rows beside the present "
                    "ones: leave it out with exclude"
                )
        if not self._with_cascades:
            yield from self._cascades()

    def _cascades(self) -> Iterator[str]:
        constraints = self._sql.texts(
            "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, DELETE_RULE, UPDATE_RULE "
            "FROM information_schema.REFERENTIAL_CONSTRAINTS"
        )
        for database, table, name, *rules in constraints:
            changes = [
                f"ON {what} {rule}"
                for what, rule in zip(("DELETE", "UPDATE"), rules, strict=True)
                if rule not in ("RESTRICT", "NO ACTION")
            ]
            if changes and self._choice.wants(f"{database}.{table}"):
                yield (
                    f"table {database}.{table}: its foreign key {name} says {' '.join(changes)}, and rows that the "
                    "server changes by that are not in the binlog: make it RESTRICT, leave the table out with exclude, "
                    'or take that with cascades = "ignore"'
                )

    def refuse_losses(self) -> None:
        for reason in self.why_lost():
            raise ConnectorRefused(reason)

    def declared(self, full_name: str) -> Mapping[str, str]:
        """The types of columns that the binlog does not tell."""
        if self._declared is None:
            self._declared = {}
            rows = self._sql.texts(
                "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE FROM information_schema.COLUMNS "
                "WHERE DATA_TYPE IN ('uuid', 'inet6', 'inet4')"
            )
            for database, table, column, kind in rows:
                self._declared.setdefault(f"{database}.{table}", {})[column] = kind
        return self._declared.get(full_name, {})

    def describe(self, full_name: str) -> TableToCopy | None:
        """None: it is gone."""
        database, _, name = full_name.partition(".")
        rows = self._sql.texts(
            "SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE "
            "FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            (database, name),
        )
        if not rows:
            return None
        columns = tuple(
            Column(column, kind.lower(), full.lower(), int(precision or 0), int(scale or 0))
            for column, kind, full, precision, scale in rows
        )
        primary = tuple(
            row[0]
            for row in self._sql.texts(
                "SELECT COLUMN_NAME FROM information_schema.KEY_COLUMN_USAGE WHERE TABLE_SCHEMA = %s AND "
                "TABLE_NAME = %s AND CONSTRAINT_NAME = 'PRIMARY' ORDER BY ORDINAL_POSITION",
                (database, name),
            )
        )
        keys = primary or tuple(self._keys.get(full_name, ()))
        names = {column.name for column in columns}
        if not keys or not set(keys) <= names:
            raise ConnectorRefused(
                f"table {full_name}: it has no primary key; name columns that are unique with "
                f'keys = {{"{full_name}" = ["COLUMN"]}}, or leave it out with exclude'
            )
        is_ordered = bool(primary) or self._has_index(database, name, keys)
        return TableToCopy(database, name, columns, keys, is_ordered, self._row_bytes(database, name))

    def _has_index(self, database: str, name: str, keys: Sequence[str]) -> bool:
        """Whether just these columns, in this order, tell each row from all others, and the server has them sorted."""
        found: dict[str, list[str]] = {}
        for index, column, nullable, prefix in self._sql.texts(
            "SELECT INDEX_NAME, COLUMN_NAME, NULLABLE, SUB_PART FROM information_schema.STATISTICS WHERE "
            "TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0 AND INDEX_TYPE = 'BTREE' ORDER BY SEQ_IN_INDEX",
            (database, name),
        ):
            found.setdefault(index, []).append("" if nullable == "YES" or prefix else column)
        return list(keys) in found.values()

    def _row_bytes(self, database: str, name: str) -> int:
        found = self._sql.texts(
            "SELECT AVG_ROW_LENGTH FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            (database, name),
        )
        return int(found[0][0] or 0) if found else 0
