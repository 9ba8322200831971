"""What `ottla produce` does: lines in, records out, as fast as lines come and no later than they do."""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import BinaryIO

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences
from ottla.cli.errors import CommandFailed
from ottla.cli.produce_lines import LineReader
from ottla.cli.progress import Progress
from ottla.cli.record_text import NotInFormat
from ottla.cli.table import counted
from ottla.client import Delivery, DeliveryFailed, NewRecord, Producer

PORTION_BYTES = 4 << 20
LONGEST_LINE_BYTES = 64 << 20


def produce(options: argparse.Namespace) -> int:
    read = LineReader(options)
    count = 0
    with errors_as_sentences(), ExitStack() as stack:
        inputs: list[BinaryIO] = [stack.enter_context(open(path, "rb")) for path in options.file] or [sys.stdin.buffer]
        progress = Progress(sum(map(_size_bytes, inputs)), is_wanted=all(map(_size_bytes, inputs)))
        producer = stack.enter_context(_producer(options))
        for lines in (lines for one in inputs for lines in _portions(one)):
            with _said_what_was_written(count, options.topic):
                records = list(map(read, lines))
                for delivery in _sent(producer, options, records):
                    count += 1
                    if options.json:
                        print(json.dumps(_row(delivery)))
            sys.stdout.flush()
            progress.advance(f"{count:,} records", sum(map(len, lines)) + len(lines))
        progress.clear()
    if options.json:
        print(json.dumps({"type": "summary", "topic": options.topic, "records": count}))
    else:
        print(f"{counted(count, 'record')} written to {options.topic}")
    return 0


def _producer(options: argparse.Namespace) -> Producer:
    try:
        return Producer(
            bootstrap_of(options),
            acks=options.acks,
            codec=options.codec,
            level=options.level,
            batch_bytes=options.batch_bytes,
            create_topics=options.create,
            options=client_options(options),
        )
    except ValueError as error:
        raise CommandFailed(str(error)) from None


def _sent(producer: Producer, options: argparse.Namespace, records: list[NewRecord]) -> Sequence[Delivery]:
    try:
        return producer.send_many(options.topic, records)
    except DeliveryFailed as failed:
        written = sum(delivery.error is None for delivery in failed.deliveries)
        raise _Failed(str(failed), written) from None


class _Failed(Exception):
    """Writing failed in the middle: the sentence, and how many records of the portion were written all the same."""

    def __init__(self, sentence: str, written: int) -> None:
        super().__init__(sentence)
        self.written = written


@contextmanager
def _said_what_was_written(count: int, topic: str) -> Iterator[None]:
    """Whoever has to go on from here needs to know how far it came."""
    try:
        yield
    except NotInFormat as error:
        raise CommandFailed(f"{error}; written to {topic} before: {counted(count, 'record')}") from None
    except _Failed as error:
        raise CommandFailed(f"{error}; written to {topic}: {counted(count + error.written, 'record')}") from None


def _row(delivery: Delivery) -> dict[str, object]:
    return {
        "type": "record",
        "topic": delivery.topic,
        "partition": delivery.partition,
        "offset": delivery.offset,
        "timestamp": delivery.timestamp_ms,
    }


def _size_bytes(file: BinaryIO) -> int:
    """Of a regular file; 0 of all else, whose end nobody knows."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _portions(file: BinaryIO) -> Iterator[list[bytes]]:
    """Whole lines, as many as are there to be read: the first of a slow pipe does not wait for the second."""
    rest = b""
    while piece := _read_some(file):
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > LONGEST_LINE_BYTES:
            raise CommandFailed(f"a line is longer than {LONGEST_LINE_BYTES:,} bytes")
        if lines:
            yield lines
    if rest:
        yield [rest]


def _read_some(file: BinaryIO) -> bytes:
    read: bytes = file.read1(PORTION_BYTES) if hasattr(file, "read1") else file.read(PORTION_BYTES)
    return read
