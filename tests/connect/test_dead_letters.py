"""Dead letters are written whatever their reason names."""

from ottla.client.message import Message
from ottla.connect import BadRecord, SourceRecord
from ottla.connect.dead_letters import of_sink, of_source
from ottla.records.codec import Record


def test_a_reason_that_is_no_text() -> None:
    """JSON lets halves of characters through, and a file may have any bytes as its name."""
    from_sink = of_sink("c", Message("t", 0, Record(7, 0, None, b"{}", ())), BadRecord(7, "column \ud800"))
    from_source = of_source("c", 0, SourceRecord("t", b"x", problem="in/\udcff.jsonl: is no JSON"))
    assert dict(from_sink.headers)["dead-letter.reason"] == b"column \\ud800"
    assert dict(from_source.headers)["dead-letter.reason"] == b"in/\\udcff.jsonl: is no JSON"
