"""A history comes back from its files as it was written, also when its writer was killed."""

from __future__ import annotations

from pathlib import Path

from tests.checker.history import HistoryWriter, Outcome, SendEnded, Step, decode, encode, read_history
from tests.checker.story import Story


def test_every_kind_of_event_comes_back() -> None:
    story = Story()
    story.send("p", "a", 0, transaction="t", source="s")
    story.poll("r", (0, "a"), (1, "b"))
    story.position("r", 5)
    story.assign("r", 5)
    story.revoke("r")
    story.end("p", "t", Step.COMMIT)
    story.commit_offset("p", 5, transaction="t")
    story.see_end("r", 6)
    assert [decode(encode(event)) for event in story.events] == story.events


def test_events_of_several_files_are_in_order_and_an_unfinished_line_is_left_out(tmp_path: Path) -> None:
    for process, times in {"p": (1, 4), "q": (2, 3)}.items():
        writer = HistoryWriter(tmp_path / process, process)
        for at_ns in times:
            writer.add(SendEnded, at_ns=at_ns, value="a", outcome=Outcome.OK)
        writer.close()
    with open(tmp_path / "q", "ab") as file:
        file.write(b'{"event": "SendEn')
    history = read_history([tmp_path / "p", tmp_path / "q"])
    assert [(event.process, event.at_ns) for event in history] == [("p", 1), ("q", 2), ("q", 3), ("p", 4)]
