"""Statements of the binlog, read as far as they say something about rows that the binlog does not show."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_TOKEN = re.compile(
    r"""
    (?P<nothing> \s+ | --(?=\s|$)[^\n]* | \#[^\n]* | /\*(?!M?!).*?\*/ | /\*M?!\d* | \*/ )
    | (?P<name> `(?:[^`]|``)*` )
    | (?P<double> "(?:[^"\\]|\\.|"")*" )
    | (?P<text> '(?:[^'\\]|\\.|'')*' )
    | (?P<word> [\w$]+ )
    | (?P<sign> . )
    """,
    re.DOTALL | re.VERBOSE,
)
_NAMES = ("name", "double", "word")  # double quotes are of names with ANSI_QUOTES
_NOT_COLUMNS = ("UNIQUE", "INDEX", "KEY", "CONSTRAINT", "PRIMARY", "FOREIGN", "FULLTEXT", "SPATIAL", "PARTITION",
                "CHECK", "PERIOD", "SYSTEM")  # fmt: skip
_REWRITES = ("MODIFY", "CHANGE", "CONVERT", "EXCHANGE", "IMPORT", "PRIMARY")
"""Words of an ALTER TABLE behind which rows have other values, other names for them, or other keys."""
_THINS = (*_REWRITES, "UNIQUE", "PARTITION", "CHECK")
"""Words of an ALTER IGNORE TABLE by which rows go that would make it fail otherwise."""
_FILLS = ("AUTO_INCREMENT", "SERIAL", "TIMESTAMP")


class _Token(NamedTuple):
    kind: str
    text: str

    def is_word(self, *words: str) -> bool:
        return self.kind == "word" and self.text.upper() in words


_END = _Token("end", "")


class Statement:
    """`database` is where it was executed; a table without one is there.

    `has_lower_names`: the server keeps names of tables in lower case, however they are written
    (lower_case_table_names=1).
    """

    def __init__(self, text: str, database: str, *, has_lower_names: bool = False) -> None:
        self._has_lower_names = has_lower_names
        self._database = self._kept(database)
        self._tokens = list(_tokens(text))
        if self._at(0).is_word("SET") and self._at(1).is_word("STATEMENT"):  # SET STATEMENT variable = 1 FOR ...
            of = next((at for at, token in enumerate(self._tokens) if token.is_word("FOR")), -1)
            del self._tokens[: of + 1]

    def _at(self, place: int) -> _Token:
        return self._tokens[place] if 0 <= place < len(self._tokens) else _END

    @property
    def kind(self) -> str:
        """Its first word."""
        return self._at(0).text.upper()

    @property
    def has_more(self) -> bool:
        """Than one word."""
        return len(self._tokens) > 1

    @property
    def databases(self) -> set[str]:
        """All that it may speak of: its own, and what stands before a dot."""
        named = {
            self._kept(self._at(place).text)
            for place in range(len(self._tokens) - 1)
            if self._at(place).kind in _NAMES and self._at(place + 1).text == "."
        }
        return {self._database, *named}

    @property
    def truncated(self) -> str | None:
        """DATABASE.TABLE of a TRUNCATE."""
        if self.kind != "TRUNCATE":
            return None
        return self._name(2 if self._at(1).is_word("TABLE") else 1)[0]

    @property
    def refilled(self) -> list[str]:
        """The tables whose rows have other values behind it, though the binlog has no row of them; it may be said too
        often."""
        if self.kind == "RENAME":
            return self._renamed()
        name, place = self._altered()
        found = [name] if name is not None and self._changes_rows(place) else []
        return found + self._names_behind(place)

    @property
    def thinned(self) -> str | None:
        """The table that may have lost rows by it, of which the binlog has none; it may be said too often."""
        name, place = self._altered()
        is_ignoring = self._at(2 if self._at(1).is_word("ONLINE") else 1).is_word("IGNORE")
        return name if is_ignoring and any(token.is_word(*_THINS) for token in self._tokens[place:]) else None

    def _altered(self) -> tuple[str | None, int]:
        """DATABASE.TABLE of an ALTER TABLE, and what stands behind it."""
        place = 1
        while self._at(place).is_word("ONLINE", "IGNORE"):
            place += 1
        if self.kind != "ALTER" or not self._at(place).is_word("TABLE"):
            return None, len(self._tokens)
        place += 1
        if self._at(place).is_word("IF"):
            place += 2
        return self._name(place)

    def _renamed(self) -> list[str]:
        """What comes under a name is not what was there under it before."""
        named = (self._name(place + 1)[0] for place in range(len(self._tokens)) if self._at(place).is_word("TO"))
        return [name for name in named if name is not None]

    def _names_behind(self, start: int) -> list[str]:
        """Of an ALTER TABLE: the new name of the table, and a table that is exchanged for a partition."""
        found = []
        for place in range(start, len(self._tokens)):
            token, following = self._at(place), self._at(place + 1)
            if token.is_word("RENAME") and not following.is_word("COLUMN", "INDEX", "KEY"):
                found.append(self._name(place + (2 if following.is_word("TO", "AS") else 1))[0])
            elif token.is_word("WITH") and following.is_word("TABLE"):
                found.append(self._name(place + 2)[0])
        return [name for name in found if name is not None]

    def _changes_rows(self, start: int) -> bool:
        places = range(start, len(self._tokens))
        if any(self._at(place).is_word(*_REWRITES) for place in places):
            return True
        if any(self._at(place).is_word("RENAME") and self._at(place + 1).is_word("COLUMN") for place in places):
            return True
        adds = any(
            self._at(place).is_word("ADD") and not self._at(place + 1).is_word(*_NOT_COLUMNS) for place in places
        )
        return adds and any(self._fills(place) for place in places)

    def _fills(self, place: int) -> bool:
        token, following = self._at(place), self._at(place + 1)
        return (
            (token.is_word("DEFAULT") and not following.is_word("NULL"))
            or (token.is_word("NOT") and following.is_word("NULL"))
            or (token.is_word("AS") and following.text == "(")
            or token.is_word(*_FILLS)
        )

    def _name(self, place: int) -> tuple[str | None, int]:
        """DATABASE.TABLE of the name there, and what stands behind it."""
        first = self._at(place)
        if first.kind not in _NAMES:
            return None, place
        if self._at(place + 1).text != "." or self._at(place + 2).kind not in _NAMES:
            return self._kept(f"{self._database}.{first.text}"), place + 1
        return self._kept(f"{first.text}.{self._at(place + 2).text}"), place + 3

    def _kept(self, name: str) -> str:
        """As the server keeps it."""
        return name.lower() if self._has_lower_names else name


def _tokens(text: str) -> Iterator[_Token]:
    """Without comments; what stands in those that the server executes (/*! ... */) is part of the statement."""
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup or ""
        if kind in ("name", "double"):
            quote = found[0][0]
            yield _Token(kind, found[0][1:-1].replace(2 * quote, quote))
        elif kind != "nothing":
            yield _Token(kind, found[0])
