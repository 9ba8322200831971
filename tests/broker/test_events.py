"""Events in the log: the same sentence always, fields beside it, as a line or as JSON."""

from __future__ import annotations

import json
import logging

import pytest

from ottla.broker.events import Events, JsonFormatter, TextFormatter


@pytest.fixture
def record(caplog: pytest.LogCaptureFixture) -> logging.LogRecord:
    with caplog.at_level(logging.DEBUG, "ottla.test"):
        Events("ottla.test").warning("a connection was refused", address="127.0.0.1", reason="2 are there", count=2)
    [record] = caplog.records
    record.created = 0.25
    record.msecs = 250
    return record


def test_a_line_for_people(record: logging.LogRecord) -> None:
    assert TextFormatter().format(record) == (
        '1970-01-01T00:00:00.250Z WARNING a connection was refused address=127.0.0.1 reason="2 are there" count=2'
    )


def test_an_object_for_machines(record: logging.LogRecord) -> None:
    assert json.loads(JsonFormatter().format(record)) == {
        "time": "1970-01-01T00:00:00.250Z",
        "level": "warning",
        "logger": "ottla.test",
        "event": "a connection was refused",
        "address": "127.0.0.1",
        "reason": "2 are there",
        "count": 2,
    }


def test_a_failure_tells_where(caplog: pytest.LogCaptureFixture) -> None:
    try:
        int("wheel")
    except ValueError:
        Events("ottla.test").failure("it failed", part="wheel")
    [record] = caplog.records
    line, traceback = TextFormatter().format(record).split("\n", 1)
    assert line.endswith("ERROR it failed part=wheel")
    assert "ValueError: invalid literal" in traceback
    assert "test_a_failure_tells_where" in json.loads(JsonFormatter().format(record))["traceback"]


def test_records_of_others_have_no_fields() -> None:
    record = logging.LogRecord("other", logging.INFO, "file", 1, "%d things", (3,), None)
    assert TextFormatter().format(record).endswith(" INFO 3 things")


def test_what_is_not_wanted_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    class Dear:
        def __str__(self) -> str:
            raise AssertionError("it was looked at")

    with caplog.at_level(logging.WARNING, "ottla.test"):
        Events("ottla.test").debug("not told", value=Dear())
    assert not caplog.records
