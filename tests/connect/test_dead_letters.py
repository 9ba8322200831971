"""Dead letters are written whatever their reason names."""

import textwrap
from pathlib import Path

import pytest

from ottla.client import NewRecord, Producer
from ottla.client.message import Message
from ottla.connect import BadRecord, SourceRecord
from ottla.connect.dead_letters import of_sink, of_source
from ottla.records.codec import Record
from ottla.testing import LocalBroker
from tests.connect.running import running, until, values_of


def test_a_reason_that_is_no_text() -> None:
    """JSON lets halves of characters through, and a file may have any bytes as its name."""
    from_sink = of_sink("c", Message("t", 0, Record(7, 0, None, b"{}", ())), BadRecord(7, "column \ud800"))
    from_source = of_source("c", 0, SourceRecord("t", b"x", problem="in/\udcff.jsonl: is no JSON"))
    assert dict(from_sink.headers)["dead-letter.reason"] == b"column \\ud800"
    assert dict(from_source.headers)["dead-letter.reason"] == b"in/\\udcff.jsonl: is no JSON"


@pytest.mark.ottla(topics={"t": 1, "letters": 1})
def test_many_bad_records_cost_no_look_at_all_the_others_each(ottla: LocalBroker, tmp_path: Path) -> None:
    """A batch took longer than its reader may take, was given to another one, and its letters were written again."""
    (tmp_path / "picky.py").write_text(
        textwrap.dedent("""
            from ottla.connect import BadRecord, Sink

            class Picky(Sink):
                def __init__(self, *, path: str) -> None:
                    self.path = path

                def write(self, batch):
                    with open(self.path, "a") as file:
                        print("asked", len(batch.records), file=file)
                        for record in batch.records:
                            if int(record.value) % 2:
                                raise BadRecord(record.offset, "odd")
                        for record in batch.records:
                            print("took", int(record.value), file=file)
        """)
    )
    with Producer(ottla.bootstrap) as producer:
        producer.send_many("t", [NewRecord(b"%d" % number) for number in range(300)])
    told = tmp_path / "told.txt"
    sink = {"type": "picky.py:Picky", "path": str(told), "topics": ["t"], "dead_letter": "letters"}
    with running(tmp_path, ottla.bootstrap, {"out": sink}):
        until(lambda: told.exists() and told.read_text().count("took") == 150)
    lines = [line.split() for line in told.read_text().splitlines()]
    assert [int(number) for what, number in lines if what == "took"] == list(range(0, 300, 2))
    assert sorted(map(int, values_of(ottla.bootstrap, "letters"))) == list(range(1, 300, 2))
    assert sum(int(size) for what, size in lines if what == "asked") < 300 + 150 * 100
