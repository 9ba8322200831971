"""Lines of input as records."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ottla.cli.record_text import DECODERS, NotInFormat, from_plain
from ottla.client import NewRecord

_FIELDS = {"value", "key", "headers", "partition", "timestamp"}
# Beside them in what consume prints, and of no use to write a record.
_IGNORED_FIELDS = {"topic", "offset", "time"}


class LineReader:
    """Reads line after line; NotInFormat names the line that cannot be read, counted from 1."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._null = None if options.null is None else options.null.encode()
        self._key = None if options.key is None else options.key.encode()
        self._headers = [(name, value.encode()) for name, value in options.header]
        self._line_number = 0

    def __call__(self, line: bytes) -> NewRecord:
        self._line_number += 1
        try:
            return self._from_json(line) if self._options.format == "json" else self._from_text(line)
        except NotInFormat as error:
            raise NotInFormat(f"line {self._line_number}: {error}") from None

    def _from_text(self, line: bytes) -> NewRecord:
        key = self._key
        value = line
        separator: bytes | None = self._options.key_separator
        decode = DECODERS[self._options.format]
        if separator is not None:
            first, found, value = line.partition(separator)
            if not found:
                raise NotInFormat("there is no key separator in it")
            key = None if first == self._null else decode(first)
        options = self._options
        return NewRecord(
            None if value == self._null else decode(value), key, self._headers, options.partition, options.timestamp
        )

    def _from_json(self, line: bytes) -> NewRecord:
        try:
            row = json.loads(line)
        except ValueError:
            raise NotInFormat("it is not JSON") from None
        if not isinstance(row, dict) or "value" not in row:
            raise NotInFormat('it is not an object with a "value"')
        if unknown := row.keys() - _FIELDS - _IGNORED_FIELDS:
            raise NotInFormat(f"it has an unknown field {min(unknown)!r}")
        return NewRecord(
            from_plain(row["value"], "value"),
            from_plain(row["key"], "key") if "key" in row else self._key,
            [*_headers(row.get("headers", [])), *self._headers],
            _number(row, "partition", self._options.partition),
            _number(row, "timestamp", self._options.timestamp),
        )


def _headers(headers: Any) -> list[tuple[str, bytes | None]]:
    if isinstance(headers, dict):
        headers = list(headers.items())
    if not isinstance(headers, list) or not all(_is_header(header) for header in headers):
        raise NotInFormat('"headers" is not a list of [name, value]')
    return [(name, from_plain(value, "the value of a header")) for name, value in headers]


def _is_header(header: Any) -> bool:
    return isinstance(header, list | tuple) and len(header) == 2 and isinstance(header[0], str)


def _number(row: dict[str, Any], name: str, otherwise: int | None) -> int | None:
    number = row.get(name)
    if number is None:
        return otherwise
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise NotInFormat(f'"{name}" is not a number from 0 on')
    return number
