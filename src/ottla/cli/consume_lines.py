"""Records as lines of output."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

from ottla.cli.record_text import ENCODERS, iso_time, to_plain
from ottla.records.codec import Record

_HARMLESS = "\t"


class LineWriter:
    """The line of a record, without its end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._null: bytes = options.null.encode()
        self._is_json = options.format == "json"
        self._encode: Callable[[bytes], bytes] = ENCODERS.get(options.format, bytes)
        self._separator: bytes = options.key_separator or b"\t"
        self._fields: tuple[str, ...] = options.show or ("value",)
        if options.key_separator is not None:
            self._fields = ("key", "value")

    def __call__(self, topic: str, partition: int, record: Record) -> bytes:
        if self._is_json:
            return json.dumps(_row(topic, partition, record)).encode()
        return self._separator.join([self._cell(name, topic, partition, record) for name in self._fields])

    def _cell(self, name: str, topic: str, partition: int, record: Record) -> bytes:
        match name:
            case "value" | "key":
                value = record.value if name == "value" else record.key
                return self._null if value is None else self._encode(value)
            case "headers":
                return b",".join(
                    b"%b=%b" % (header.encode(), self._null if value is None else self._encode(value))
                    for header, value in record.headers
                )
            case "topic":
                return topic.encode()
            case "partition":
                return b"%d" % partition
            case "time":
                return (iso_time(record.timestamp) or "-").encode()
        return b"%d" % getattr(record, name)


def _row(topic: str, partition: int, record: Record) -> dict[str, object]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "time": iso_time(record.timestamp),
        "key": to_plain(record.key),
        "value": to_plain(record.value),
        "headers": [[name, to_plain(value)] for name, value in record.headers],
    }


def terminal_safe(line: bytes) -> bytes:
    """Characters that steer a terminal must not reach it."""
    text = line.decode(errors="backslashreplace")
    if text.isprintable():
        return text.encode()
    return "".join(
        letter if letter.isprintable() or letter in _HARMLESS else ascii(letter)[1:-1] for letter in text
    ).encode()
