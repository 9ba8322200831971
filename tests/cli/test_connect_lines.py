"""What `ottla connect run` says of several tasks at once."""

from __future__ import annotations

import io
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ottla.cli.connect_run import _Teller
from ottla.connect.state import TaskStatus


class Pieces(io.StringIO):
    """Keeps what each call wrote."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)


@pytest.mark.parametrize("is_json", [True, False])
def test_each_line_is_written_at_once(monkeypatch: pytest.MonkeyPatch, is_json: bool) -> None:
    """Or those of two tasks could stand in one line."""
    pieces = Pieces()
    monkeypatch.setattr(sys, "stdout", pieces)
    teller = _Teller(is_json=is_json)
    status: Any = TaskStatus("running", "runner", 1)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda task: teller.tell("orders", str(task), status), range(10)))
    assert len(pieces.written) == 10
    assert all(piece.endswith("\n") for piece in pieces.written)
