"""Tables of a SQL database that take rows as they come: made, given columns, and widened when rows need it."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

KEY_TEXT_LENGTH = 255
"""Of a text in a primary key, where the database wants a length."""
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_WHOLE = ("smallint", "int", "bigint")
_WHOLE_DIGITS = {"smallint": 5, "int": 10, "bigint": 19}


class DoesNotFit(ValueError):
    """A column or value that the table cannot take; the text says why."""


class SqlTable:
    """One table, as it is in the database. Columns have types in the words of change events."""

    def __init__(self, engine: Any, name: str) -> None:
        self.name = name
        self._engine = engine
        self.table: Any = None
        self._reflect()

    def _reflect(self) -> None:
        metadata = sa.MetaData()
        try:
            self.table = sa.Table(self.name, metadata, autoload_with=self._engine)
        except sa.exc.NoSuchTableError:
            self.table = None

    @property
    def keys(self) -> tuple[str, ...]:
        return () if self.table is None else tuple(column.name for column in self.table.primary_key.columns)

    def ensure(self, columns: Mapping[str, str], keys: Sequence[str]) -> None:
        """Makes the table, adds columns, widens types. Each step is one that another runner may have done already."""
        if self.table is None:
            self._create(columns, keys)
            return
        there = {column.name: column for column in self.table.columns}
        for name, kind in columns.items():
            if name not in there:
                self._alter(f"ADD COLUMN {self._quoted(name)} {self._compiled(self._type(kind, is_key=False))}", name)
            elif (wider := self._wider(there[name].type, kind)) is not None:
                self._widen(name, wider)
        if set(columns) - set(there) or any(
            self._wider(there[name].type, columns[name]) for name in columns if name in there
        ):
            self._reflect()

    def _create(self, columns: Mapping[str, str], keys: Sequence[str]) -> None:
        if not keys:
            raise DoesNotFit(f"table {self.name}: its rows have no key; name the columns with keys = [...]")
        made = sa.Table(
            self.name,
            sa.MetaData(),
            *(
                sa.Column(name, self._type(kind, is_key=name in keys), primary_key=name in keys, autoincrement=False)
                for name, kind in columns.items()
            ),
        )
        made.create(self._engine, checkfirst=True)
        self._reflect()

    def _alter(self, change: str, column: str) -> None:
        try:
            with self._engine.begin() as connection:
                connection.execute(sa.text(f"ALTER TABLE {self._quoted(self.name)} {change}"))
        except sa.exc.DBAPIError:
            self._reflect()
            if column not in self.table.columns:
                raise

    def _widen(self, name: str, wider: Any) -> None:
        kind, quoted = self._compiled(wider), self._quoted(name)
        match self._engine.dialect.name:
            case "sqlite":
                return  # its columns take any value
            case "postgresql":
                self._alter(f"ALTER COLUMN {quoted} TYPE {kind}", name)
            case "mysql" | "mariadb":
                self._alter(f"MODIFY COLUMN {quoted} {kind}", name)
            case other:
                raise DoesNotFit(f"table {self.name}: column {name} has to become {kind}, which is to be done by hand "
                                 f"in {other}")  # fmt: skip

    def _wider(self, there: Any, asked: str) -> Any:
        """The type that the column must get; None if it is wide enough."""
        if self._engine.dialect.name == "sqlite":
            return None
        if isinstance(there, sa.Integer) and asked in _WHOLE:
            known = "smallint" if isinstance(there, sa.SmallInteger) else "int"
            if isinstance(there, sa.BigInteger):
                known = "bigint"
            return self._type(asked, is_key=False) if _WHOLE.index(asked) > _WHOLE.index(known) else None
        if isinstance(there, sa.Integer) and (found := _DECIMAL.fullmatch(asked)):
            return sa.Numeric(max(int(found[1]), 19 + int(found[2])), int(found[2]))
        if isinstance(there, sa.Numeric) and not isinstance(there, sa.Float) and there.precision is not None:
            digits = _digits(asked)
            if digits is None:
                return None
            fraction = max(there.scale or 0, digits[1])
            whole = max(there.precision - (there.scale or 0), digits[0])
            if (whole + fraction, fraction) != (there.precision, there.scale or 0):
                return sa.Numeric(whole + fraction, fraction)
        if (
            isinstance(there, sa.String)
            and there.length is not None
            and asked == "string"
            and self.name not in self.keys
        ):
            return None
        return None

    def _type(self, kind: str, *, is_key: bool) -> Any:
        if (found := _DECIMAL.fullmatch(kind)) is not None:
            return sa.Numeric(int(found[1]), int(found[2]))
        is_mysql = self._engine.dialect.name in ("mysql", "mariadb")
        match kind:
            case "string":
                if is_mysql:
                    return mysql.VARCHAR(KEY_TEXT_LENGTH, collation=self._exact()) if is_key else mysql.LONGTEXT()
                return sa.Text()
            case "binary":
                if is_mysql:
                    return sa.VARBINARY(KEY_TEXT_LENGTH) if is_key else mysql.LONGBLOB()
                return sa.LargeBinary()
            case "timestamp":
                return mysql.DATETIME(fsp=6) if is_mysql else sa.DateTime()
            case "float":
                return sa.Float()
            case "double":
                return sa.Double()
        return {"boolean": sa.Boolean, "smallint": sa.SmallInteger, "int": sa.Integer, "bigint": sa.BigInteger,
                "date": sa.Date}[kind]()  # fmt: skip

    def _exact(self) -> str:
        """A collation in which texts are the same only if each character is: keys that differ are two rows."""
        return "utf8mb4_nopad_bin" if self._engine.dialect.is_mariadb else "utf8mb4_0900_bin"

    def _compiled(self, kind: Any) -> str:
        return str(kind.compile(dialect=self._engine.dialect))

    def _quoted(self, name: str) -> str:
        return str(self._engine.dialect.identifier_preparer.quote(name))

    # Rows.

    def upsert(self, connection: Any, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
        """All rows have the same columns."""
        others = [name for name in rows[0] if name not in keys]
        match self._engine.dialect.name:
            case "sqlite" | "postgresql" as dialect:
                made: Any = (sqlite if dialect == "sqlite" else postgresql).insert(self.table)
                if others:
                    values = {name: made.excluded[name] for name in others}
                    made = made.on_conflict_do_update(index_elements=list(keys), set_=values)
                else:
                    made = made.on_conflict_do_nothing(index_elements=list(keys))
            case "mysql" | "mariadb":
                made = mysql.insert(self.table)
                names = others or list(keys)
                made = made.on_duplicate_key_update({name: made.inserted[name] for name in names})
            case _:
                self.delete(connection, [{key: row[key] for key in keys} for row in rows])
                made = sa.insert(self.table)
        connection.execute(made, list(rows))

    def delete(self, connection: Any, keys: Sequence[Mapping[str, Any]]) -> None:
        condition = sa.and_(*(self.table.c[name] == sa.bindparam(f"key_{name}") for name in keys[0]))
        connection.execute(
            sa.delete(self.table).where(condition),
            [{f"key_{name}": value for name, value in key.items()} for key in keys],
        )


def _digits(kind: str) -> tuple[int, int] | None:
    if (found := _DECIMAL.fullmatch(kind)) is not None:
        return int(found[1]) - int(found[2]), int(found[2])
    return (_WHOLE_DIGITS[kind], 0) if kind in _WHOLE_DIGITS else None


def to_sql(name: str, value: Any, kind: str) -> Any:
    """A value of a change event as the database wants it."""
    if value is None:
        return None
    try:
        if kind.startswith("decimal"):
            return decimal.Decimal(str(value))
        match kind:
            case "binary":
                return base64.b64decode(value, validate=True)
            case "date":
                return dt.date.fromisoformat(value)
            case "timestamp":
                return _moment(value)
            case "float" | "double":
                return float(value)
            case "string":
                return value if isinstance(value, str) else str(value)
            case "smallint" | "int" | "bigint":
                return int(value)
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DoesNotFit(f"column {name}: {value!r} is no {kind}: {error}") from None
    return value


def _moment(value: Any) -> dt.datetime:
    """In UTC, without a zone."""
    if isinstance(value, int):
        return dt.datetime(1970, 1, 1) + dt.timedelta(milliseconds=value)
    moment = dt.datetime.fromisoformat(value)
    return moment.astimezone(dt.UTC).replace(tzinfo=None) if moment.tzinfo is not None else moment
