"""Tables of a SQL database that take rows as they come: made, given columns, and widened when rows need it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite

from ottla.connect.interface import ConnectorRefused
from ottla.connect.sql_types import (
    EXACT_IN_DOUBLE,
    DoesNotFit,
    digits_of,
    is_kept_as_number,
    joined,
    seconds_digits,
    word_of_column,
)

KEY_TEXT_LENGTH = 255
"""Of a text in a primary key, where the database wants a length."""
MOST_DIGITS, MOST_FRACTION_DIGITS = 65, 30
"""Of a decimal in MariaDB and MySQL."""
LONGEST_NAME = {"mysql": 64, "mariadb": 64, "postgresql": 63}
STRICT = "SET SESSION sql_mode = CONCAT_WS(',', NULLIF(@@sql_mode, ''), 'STRICT_ALL_TABLES')"


def make_engine(url: str) -> Any:
    """MariaDB and MySQL cut values that are too long, and round numbers that are too large, unless they are told."""
    engine = sa.create_engine(url)
    if engine.dialect.name in ("mysql", "mariadb"):
        sa.event.listen(engine, "connect", _be_strict)
    return engine


def _be_strict(connection: Any, _record: Any) -> None:
    cursor = connection.cursor()
    cursor.execute(STRICT)
    cursor.close()


# A task tells what failed. SQLAlchemy would show the traceback of a connection that broke, as nobody has asked it to.
logging.getLogger("sqlalchemy").addHandler(logging.NullHandler())


class SqlTable:
    """One table, as it is in the database. Columns have types in the words of change events."""

    def __init__(self, engine: Any, name: str) -> None:
        self.name = name
        self._engine = engine
        self.table: Any = None
        self.words: dict[str, str | None] = {}
        """What each column holds; None where there is no word for it."""
        self._widened: dict[str, tuple[Any, str]] = {}
        """Of SQLite, whose columns take any value: their types and words as they are written to."""
        self._reals: set[str] = set()
        self._reflect()

    def _reflect(self) -> None:
        metadata = sa.MetaData()
        try:
            self.table = sa.Table(self.name, metadata, autoload_with=self._engine)
        except sa.exc.NoSuchTableError:
            self.table = None
            return
        self.words = {column.name: self._word_of(column.type) for column in self.table.columns}
        self._reals = {column.name for column in self.table.columns if isinstance(column.type, sa.Float)}
        for name, (kind, word) in self._widened.items():
            if name in self.words:
                self.table.columns[name].type, self.words[name] = kind, word

    def _word_of(self, kind: Any) -> str | None:
        word = word_of_column(kind)
        return "double" if self._is_sqlite and word is not None and word.startswith("decimal") else word

    @property
    def _is_sqlite(self) -> bool:
        """It has no decimals: what is given to such a column becomes a floating number."""
        return bool(self._engine.dialect.name == "sqlite")

    @property
    def keys(self) -> tuple[str, ...]:
        return () if self.table is None else tuple(column.name for column in self.table.primary_key.columns)

    @property
    def _is_mysql(self) -> bool:
        return self._engine.dialect.name in ("mysql", "mariadb")

    def _unique(self) -> set[frozenset[str]]:
        """The sets of columns of which no two rows have the same."""
        found = [self.table.primary_key, *(index for index in self.table.indexes if index.unique)]
        found += [each for each in self.table.constraints if isinstance(each, sa.UniqueConstraint)]
        return {frozenset(column.name for column in each.columns) for each in found} - {frozenset()}

    def check_keys(self, keys: Sequence[str]) -> None:
        """Rows are found by them, and the database has to see to it that there is one of each."""
        if frozenset(keys) not in self._unique():
            raise ConnectorRefused(
                f"table {self.name}: ({', '.join(keys)}) is neither its primary key nor unique, so that rows would be "
                "there twice; make it so, or name other columns with keys = [...]"
            )

    def check(self, name: str, value: Any) -> None:
        """DoesNotFit for a value that the column would take, and keep as another one."""
        if isinstance(value, float) and not math.isfinite(value) and self._engine.dialect.name != "postgresql":
            raise DoesNotFit(f"column {name}: the database has no {value}")
        if name in self._widened and self._widened[name][1] == "string" and isinstance(value, str):
            if not is_kept_as_number(value, is_real=name in self._reals):
                raise DoesNotFit(
                    f"column {name}: SQLite would keep the text {value!r} as a number, for others are there"
                )
            return
        kind = self.table.columns[name].type
        if self._is_mysql and isinstance(kind, sa.DateTime | sa.Time):
            digits, room = seconds_digits(value), getattr(kind, "fsp", None) or 0
            if digits > room:
                raise DoesNotFit(f"column {name} holds {room} digits of parts of a second, and {value} has {digits}")

    def ensure(self, name: str, word: str) -> None:
        """Adds a column, or widens it. Another runner may have done so already.

        DoesNotFit where the column would have to hold what does not go together, or would lose some of what it has.
        """
        if name not in self.words:
            self._check_names([name, *self.words])
            added = self._compiled(self._type(word, is_key=False))
            self._alter(f"ADD COLUMN {self._quoted(name)} {added}", lambda: name in self.words)
        elif (wider := self._wider(name, word)) is not None:
            self._widen(name, wider)

    def create(self, columns: Mapping[str, str], keys: Sequence[str]) -> None:
        """Unless another runner has done so already."""
        if not keys:
            raise DoesNotFit(f"table {self.name}: its rows have no key; name the columns with keys = [...]")
        self._check_names(list(columns))
        made = sa.Table(
            self.name,
            sa.MetaData(),
            *(
                sa.Column(name, self._type(word, is_key=name in keys), primary_key=name in keys, autoincrement=False)
                for name, word in columns.items()
            ),
            mysql_engine="InnoDB",
            mariadb_engine="InnoDB",
        )
        made.create(self._engine, checkfirst=True)
        self._reflect()

    def _check_names(self, names: Sequence[str]) -> None:
        """That the database can have columns of all these names. The first one is not there yet."""
        dialect = self._engine.dialect.name
        seen: set[str] = set()
        for name in reversed(names):
            known = name if dialect == "postgresql" else name.casefold()
            if known in seen:
                raise DoesNotFit(f"table {self.name}: two columns {name}, which differ in capitals only, cannot be")
            seen.add(known)
            size = len(name.encode(errors="replace")) if dialect == "postgresql" else len(name)
            is_odd = self._is_mysql and (name.endswith(" ") or any(each in "`\r\n" or each > "\uffff" for each in name))
            if not name or "\0" in name or is_odd or size > LONGEST_NAME.get(dialect, size):
                raise DoesNotFit(f"table {self.name}: a column of {dialect} cannot have the name {name!r}")

    def _alter(self, change: str, is_done: Callable[[], bool]) -> None:
        """Where it fails, another runner may have been first: then it is done."""
        try:
            with self._engine.begin() as connection:
                # As it is: a name may look like a parameter, and a % in it is there twice already.
                connection.exec_driver_sql(f"ALTER TABLE {self._quoted(self.name)} {change}")
        except sa.exc.DBAPIError:
            self._reflect()
            if not is_done():
                raise
        self._reflect()

    # Wider columns.

    def _wider(self, name: str, asked: str) -> str | None:
        """The type that the column must get; None if it is wide enough."""
        known = self.words[name]
        if known is None or known == asked or (known == "string" and asked != "binary"):
            return None
        if self._is_sqlite and known == "double" and digits_of(asked) is not None:
            return None  # each value is looked at
        wider = joined(known, asked)
        if wider is None:
            raise DoesNotFit(f"table {self.name}: column {name} is {known}, which cannot hold {asked} as well")
        return None if wider == known or self._is_within(wider, known) else wider

    def _is_within(self, wider: str, known: str) -> bool:
        """Of two exact numbers: whether the column has room for it, under another name."""
        asked, there = digits_of(wider), digits_of(known)
        return asked is not None and there is not None and asked[0] <= there[0] and asked[1] <= there[1]

    def _widen(self, name: str, wider: str) -> None:
        known, column = self.words[name], self.table.columns[name]
        if wider == "double" and known == "bigint" and self._has_beyond(column):
            raise DoesNotFit(
                f"table {self.name}: column {name} has numbers that are not exact as {wider}, which it would have to be"
            )
        made = self._type(wider, is_key=name in self.keys)
        kind, quoted = self._compiled(made), self._quoted(name)
        match self._engine.dialect.name:
            case "sqlite":  # its columns take any value: only who writes has to know
                self._widened[name] = made, wider
                column.type, self.words[name] = made, wider
                return
            case "postgresql":
                using = f" USING {quoted}::int::{kind}" if known == "boolean" else ""
                self._alter(f"ALTER COLUMN {quoted} TYPE {kind}{using}", lambda: self._wider(name, wider) is None)
            case "mysql" | "mariadb":
                rest = "" if column.nullable else " NOT NULL"
                self._alter(f"MODIFY COLUMN {quoted} {kind}{rest}", lambda: self._wider(name, wider) is None)
            case other:
                raise DoesNotFit(
                    f"table {self.name}: column {name} has to become {kind}, which is to be done by hand in {other}"
                )

    def _has_beyond(self, column: Any) -> bool:
        """Whether there are numbers that a floating one does not hold exactly."""
        is_beyond = sa.or_(column > EXACT_IN_DOUBLE, column < -EXACT_IN_DOUBLE)
        with self._engine.connect() as connection:
            return connection.execute(sa.select(sa.literal(1)).where(is_beyond).limit(1)).first() is not None

    def _type(self, word: str, *, is_key: bool) -> Any:
        is_mysql = self._is_mysql
        if word.startswith("decimal") and (digits := digits_of(word)) is not None:
            if is_mysql and (sum(digits) > MOST_DIGITS or digits[1] > MOST_FRACTION_DIGITS):
                raise DoesNotFit(f"table {self.name}: the database has no {word}")
            return sa.Numeric(sum(digits), digits[1])
        match word:
            case "string":
                if is_mysql:
                    return (
                        mysql.VARCHAR(KEY_TEXT_LENGTH, collation=self._exact())
                        if is_key
                        else mysql.LONGTEXT(charset="utf8mb4")
                    )
                return sa.Text()
            case "binary":
                if is_mysql:
                    return sa.VARBINARY(KEY_TEXT_LENGTH) if is_key else mysql.LONGBLOB()
                return sa.LargeBinary()
            case "timestamp":
                return mysql.DATETIME(fsp=6) if is_mysql else sa.DateTime()
            case "float":
                return sa.REAL() if self._engine.dialect.name == "postgresql" else sa.Float()
            case "double":
                return sa.Double()
        return {"boolean": sa.Boolean, "smallint": sa.SmallInteger, "int": sa.Integer, "bigint": sa.BigInteger,
                "date": sa.Date}[word]()  # fmt: skip

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
            case "mysql" | "mariadb" if self._unique() != {frozenset(keys)} or any("%" in name for name in rows[0]):
                self._upsert_each(connection, rows, keys)
                return
            case "mysql" | "mariadb":
                made = mysql.insert(self.table)
                names = others or list(keys)
                made = made.on_duplicate_key_update({name: made.inserted[name] for name in names})
            case _:
                self.delete(connection, [{key: row[key] for key in keys} for row in rows])
                made = sa.insert(self.table)
        connection.execute(made, list(rows))

    def _upsert_each(self, connection: Any, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> None:
        """Where something else is unique, too, MariaDB and MySQL would change the row that has it already.

        And SQLAlchemy writes a % in a name of a column twice behind ON DUPLICATE KEY.
        """
        for row in rows:
            is_row = sa.and_(*(self.table.c[key] == row[key] for key in keys))
            if connection.execute(sa.select(sa.literal(1)).select_from(self.table).where(is_row)).first() is None:
                connection.execute(sa.insert(self.table), row)
            elif values := {name: value for name, value in row.items() if name not in keys}:
                connection.execute(sa.update(self.table).where(is_row).values(values))

    def delete(self, connection: Any, keys: Sequence[Mapping[str, Any]]) -> None:
        condition = sa.and_(*(self.table.c[name] == sa.bindparam(f"key_{name}") for name in keys[0]))
        connection.execute(
            sa.delete(self.table).where(condition),
            [{f"key_{name}": value for name, value in key.items()} for key in keys],
        )

    def clear(self, connection: Any) -> None:
        """Deletes all rows."""
        connection.execute(sa.delete(self.table))
