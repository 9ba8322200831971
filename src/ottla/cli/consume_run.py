"""What `ottla consume` does."""

from __future__ import annotations

import argparse
import sys

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences
from ottla.cli.consume_lines import LineWriter, terminal_safe
from ottla.cli.progress import Progress
from ottla.client import EARLIEST, LATEST, AtTime, Isolation, Position, Reader


def consume(options: argparse.Namespace) -> int:
    is_terminal = sys.stdout.isatty()
    line_of = LineWriter(options)
    left = options.count
    with errors_as_sentences(), _reader(options) as reader:
        has_end = _end(options) is not None
        # Where the records themselves go to a terminal, they are the progress.
        progress = Progress(reader.left() if has_end else 0, is_wanted=has_end and not is_terminal)
        for fetched in reader:
            records = fetched.records if left is None else fetched.records[:left]
            lines = [line_of(fetched.topic, fetched.partition, record) for record in records]
            if is_terminal:
                lines = [terminal_safe(line) for line in lines]
            sys.stdout.buffer.write(b"\n".join([*lines, b""]))
            sys.stdout.buffer.flush()
            progress.advance(fetched.topic, len(records))
            if left is not None:
                left -= len(records)
                if left == 0:
                    break
        progress.clear()
    return 0


def _reader(options: argparse.Namespace) -> Reader:
    return Reader(
        bootstrap_of(options),
        options.topic,
        options.partition,
        start=_start(options),
        end=_end(options),
        isolation=Isolation.READ_UNCOMMITTED if options.uncommitted else Isolation.READ_COMMITTED,
        in_order=options.in_order,
        options=client_options(options),
    )


def _start(options: argparse.Namespace) -> Position:
    if options.offset is not None:
        return int(options.offset)
    if options.from_time is not None:
        return AtTime(options.from_time)
    return EARLIEST if options.from_beginning else LATEST


def _end(options: argparse.Namespace) -> Position | None:
    if options.to_offset is not None:
        return int(options.to_offset)
    if options.to_time is not None:
        return AtTime(options.to_time)
    return LATEST if options.to_end else None
