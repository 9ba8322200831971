"""Statements that change the rows of a table without a row of it in the binlog: the table has to be copied again."""

from __future__ import annotations

import re

_TABLE = re.compile(r"\s*ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?((?:`[^`]+`|[\w$.]+)+)\s*(.*)",
                    re.IGNORECASE | re.DOTALL)  # fmt: skip
_COMMENTS = re.compile(r"/\*.*?\*/|--[^\n]*|#[^\n]*", re.DOTALL)
_CHANGES = re.compile(r"\b(MODIFY|CHANGE|CONVERT)\b", re.IGNORECASE)
_ADDS = re.compile(
    r"\bADD\b(?!\s+(?:UNIQUE|INDEX|KEY|CONSTRAINT|PRIMARY|FOREIGN|FULLTEXT|SPATIAL|PARTITION|CHECK|PERIOD|SYSTEM)\b)",
    re.IGNORECASE,
)
_FILLED = re.compile(r"\bDEFAULT\b(?!\s+NULL\b)|\bNOT\s+NULL\b|\bAS\s*\(|\bAUTO_INCREMENT\b", re.IGNORECASE)


def refilled_table(statement: str, database: str) -> str | None:
    """DATABASE.TABLE if the rows that are there have other values after an ALTER TABLE; it may be said too often."""
    found = _TABLE.match(_COMMENTS.sub(" ", statement))
    if found is None:
        return None
    name, clauses = found[1].replace("`", ""), found[2]
    if not (_CHANGES.search(clauses) or (_ADDS.search(clauses) and _FILLED.search(clauses))):
        return None
    return name if "." in name else f"{database}.{name}"
