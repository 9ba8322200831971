"""`ottla log dump`: show what files hold, for people or, with --json, for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

from ottla.cli.errors import FAILED, CommandFailed
from ottla.cli.log_rows import FAULT, Row, rows_of
from ottla.cli.progress import Progress
from ottla.cli.record_text import to_plain
from ottla.log.inspect.files import Kind, LogFile
from ottla.log.inspect.folder import NotALog, files_at

SHORT_CHARACTERS = 80

_BATCH_HEADING = (
    f"{'offsets':>21} {'position':>11} {'bytes':>9} {'records':>8} {'epoch':>6}  {'latest record':24}  about"
)
_LINE_BREAKS = str.maketrans("", "", "\n\r\t")


def dump(options: argparse.Namespace) -> int:
    try:
        files = [file for path in options.paths for file in files_at(path)]
    except NotALog as error:
        raise CommandFailed(str(error)) from None
    # Where the rows themselves go to a terminal, they are the progress.
    total_bytes = sum(file.path.stat().st_size for file in files)
    progress = Progress(total_bytes, is_wanted=not sys.stdout.isatty())
    shown = _Shown(options, progress)
    for file in files:
        for line in shown.json_lines(file) if options.json else shown.lines(file):
            print(line)
    progress.clear()
    return FAILED if shown.is_damaged else 0


class _Shown:
    """The files as they are shown, and whether all of them could be read."""

    def __init__(self, options: argparse.Namespace, progress: Progress) -> None:
        self._options = options
        self._progress = progress
        self.is_damaged = False

    def json_lines(self, file: LogFile) -> Iterator[str]:
        for row in self._rows(file):
            yield json.dumps({"type": row.pop("type"), "path": str(file.path), **row}, default=to_plain)

    def lines(self, file: LogFile) -> Iterator[str]:
        rows = self._rows(file)
        first = list(islice(rows, 1))
        if self._options.offset is not None and not first:
            return  # somebody who looks for certain offsets need not see all the files that do not have them
        yield f"{file.path}: {file.kind.value.replace('_', ' ')}"
        if first and file.kind is Kind.SEGMENT:
            yield _BATCH_HEADING
        for row in chain(first, rows):
            yield _LINES[row["type"]](row, self._options.full)
        yield ""

    def _rows(self, file: LogFile) -> Iterator[Row]:
        """The rows to show. The limit counts what was asked for: a batch above its records is none."""
        options = self._options
        shown = 0
        rows = rows_of(file, offsets=options.offset, with_records=options.records, progress=self._progress.advance)
        for row in rows:
            if shown == options.limit:
                return
            self.is_damaged |= row["type"] == FAULT
            shown += row["type"] != FAULT and not (options.records and row["type"] == "batch")
            yield row


def shown_bytes(value: bytes | None, *, full: bool) -> str:
    """Bytes as quoted text if they are that, or in hexadecimal, not too long unless asked for."""
    if value is None:
        return "null"
    text = _printable(value)
    shown = json.dumps(text, ensure_ascii=False) if text is not None else f"0x{value.hex()}"
    if full or len(shown) <= SHORT_CHARACTERS:
        return shown
    return f"{shown[:SHORT_CHARACTERS]}... ({len(value):,} bytes)"


def _printable(value: bytes) -> str | None:
    """None unless all of it can be shown; characters that steer a terminal must not reach it."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return text if text.translate(_LINE_BREAKS).isprintable() else None


def _time(row: Row, name: str) -> str:
    """A time, or the number where it is none."""
    return str(row[name] or row[name.replace("time", "timestamp")])


def _batch_line(row: Row, _full: bool) -> str:
    offsets = f"{row['base_offset']}-{row['last_offset']}"
    numbers = f"{offsets:>21} {row['position']:>11} {row['size_bytes']:>9} {row['count']:>8} {row['leader_epoch']:>6}"
    return f"{numbers}  {_time(row, 'max_time'):24}  {', '.join(_about(row))}".rstrip()


def _about(row: Row) -> Iterator[str]:
    if row["controls"] is not None:
        yield " ".join(row["controls"]) or "empty control batch"
    elif row["is_transactional"]:
        yield "transactional"
    if row["producer_id"] >= 0:
        yield f"producer {row['producer_id']} epoch {row['producer_epoch']}"
    if row["base_sequence"] >= 0:
        yield f"sequence {row['base_sequence']}-{row['last_sequence']}"
    if row["codec"] != "none":
        yield str(row["codec"])
    if row["timestamp_type"] == "log_append":
        yield "log append time"
    if row["delete_horizon_ms"] is not None:
        yield f"tombstones until {row['delete_horizon_ms']}"


def _record_line(row: Row, full: bool) -> str:
    def show(value: bytes | None) -> str:
        return shown_bytes(value, full=full)

    line = f"{row['offset']:>21}  {_time(row, 'time'):24}  {show(row['key'])}: {show(row['value'])}"
    if row["headers"]:
        line += f"  [{', '.join(f'{show(name.encode())}: {show(value)}' for name, value in row['headers'])}]"
    return line


def _time_index_line(row: Row, _full: bool) -> str:
    return f"    {_time(row, 'time')}  offset {row['offset']}"


def _aborted_line(row: Row, _full: bool) -> str:
    offsets = f"offsets {row['first_offset']}-{row['last_offset']}"
    return f"    producer {row['producer_id']}  {offsets}  last stable offset {row['last_stable_offset']}"


def _producer_batch_line(row: Row, _full: bool) -> str:
    sequences = f"sequences {row['first_sequence']}-{row['last_sequence']}"
    offsets = f"offsets {row['base_offset']}-{row['last_offset']}"
    return f"    producer {row['producer_id']}  epoch {row['producer_epoch']}  {sequences}  {offsets}"


def _producer_line(row: Row, _full: bool) -> str:
    line = f"    producer {row['producer_id']}  epoch {row['producer_epoch']}  last sequence {row['last_sequence']}"
    line += f"  last offset {row['last_offset']}  {_time(row, 'last_time')}"
    if row["coordinator_epoch"] >= 0:
        line += f"  coordinator epoch {row['coordinator_epoch']}"
    return line if row["transaction_start"] is None else f"{line}  open transaction from {row['transaction_start']}"


def _fault_line(row: Row, _full: bool) -> str:
    place = "" if row["position"] is None else f"byte {row['position']}: "
    return f"DAMAGED  {place}{row['reason']}"


_LINES: dict[str, Callable[[Any, bool], str]] = {
    "batch": _batch_line,
    "record": _record_line,
    FAULT: _fault_line,
    "index_entry": lambda row, _: f"    offset {row['offset']}  position {row['position']}",
    "time_index_entry": _time_index_line,
    "aborted_transaction": _aborted_line,
    "producer": _producer_line,
    "producer_batch": _producer_batch_line,
    "leader_epoch": lambda row, _: f"    epoch {row['epoch']}  from offset {row['start_offset']}",
    "checkpoint": lambda row, _: f"    {row['topic']} {row['partition']}  {row['offset']}",
    "partition_metadata": lambda row, _: f"    topic id {row['topic_id']}  {row['uuid']}",
    "property": lambda row, _: f"    {row['name']} = {row['value']}",
}
