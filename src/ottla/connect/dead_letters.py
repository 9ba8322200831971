"""What cannot be taken is kept in a topic, as it came, with the reason in its headers."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.client import Message, NewRecord
from ottla.connect.interface import SourceRecord


def of_source(connector: str, task: int, record: SourceRecord) -> NewRecord:
    reason: Sequence[tuple[str, bytes | None]] = (
        ("dead-letter.connector", connector.encode()),
        ("dead-letter.task", b"%d" % task),
        ("dead-letter.topic", record.topic.encode()),
        ("dead-letter.reason", _text(record.problem or "")),
    )
    return NewRecord(record.value, record.key, (*record.headers, *reason), timestamp_ms=record.timestamp_ms)


def of_sink(connector: str, message: Message, error: Exception) -> NewRecord:
    """The headers that a consumer's dead letters have, too. Topic, partition and offset tell one from the other: the
    same message may come twice if the runner dies between the letter and the batch."""
    reason: Sequence[tuple[str, bytes | None]] = (
        ("dead-letter.connector", connector.encode()),
        ("dead-letter.topic", message.topic.encode()),
        ("dead-letter.partition", b"%d" % message.partition),
        ("dead-letter.offset", b"%d" % message.offset),
        ("dead-letter.error", type(error).__name__.encode()),
        ("dead-letter.reason", _text(str(error))),
    )
    timestamp_ms = message.timestamp_ms if message.timestamp_ms >= 0 else None
    return NewRecord(message.value, message.key, (*message.headers, *reason), timestamp_ms=timestamp_ms)


def _text(reason: str) -> bytes:
    """It may name what is no text: the name of a file, or half a character that JSON has let through."""
    return reason.encode("utf-8", "backslashreplace")
