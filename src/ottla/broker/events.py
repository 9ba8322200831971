"""What the broker logs: events with fields, which people read as lines and machines as JSON.

An event is a sentence that is always the same, so that it can be searched for; what differs is in its fields.
"""

from __future__ import annotations

import json
import logging
import time

_FIELDS = "ottla_fields"


class Events:
    """The events of one part of the broker."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **fields: object) -> None:
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._log(logging.WARNING, event, fields)

    def failure(self, event: str, **fields: object) -> None:
        """A mistake of the broker's own, with where it happened: called where it is caught."""
        self._log(logging.ERROR, event, fields, is_failure=True)

    def _log(self, level: int, event: str, fields: dict[str, object], *, is_failure: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            self._logger.log(level, event, extra={_FIELDS: fields}, exc_info=is_failure)


class TextFormatter(logging.Formatter):
    """2026-01-31T12:00:00.000Z WARNING a connection was refused address=127.0.0.1 reason="there are 2 already" """

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={_text(value)}" for name, value in _fields_of(record).items())
        line = f"{_time(record)} {record.levelname} {record.getMessage()}{fields}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One object a line: time, level, logger, event, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        entry |= {name: value for name, value in _fields_of(record).items() if name not in entry}
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


FORMATTERS: dict[str, type[logging.Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, _FIELDS, {})
    return fields


def _time(record: logging.LogRecord) -> str:
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03d}Z"


def _text(value: object) -> str:
    text = str(value)
    return json.dumps(text) if not text or any(mark in text for mark in ' "=\n') else text
