"""The table of measured rounds in docs/limits.md, between two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.limits.measure import Measured

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"
BEGIN = "<!-- measured rounds: written by python -m tests.limits -->\n"
END = "<!-- end of measured rounds -->\n"


def write_table(measured: Sequence[Measured]) -> None:
    rows = sorted(measured, key=lambda row: -row.round_seconds)
    table = "| API | longest round, ms |\n|---|---|\n"
    table += "".join(f"| {row.api} | {row.round_seconds * 1000:.0f} |\n" for row in rows)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + table + "\n" + END + rest.partition(END)[2])


def read_table() -> dict[str, int]:
    """The milliseconds of each API."""
    table = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [line.strip("| \n").split(" | ") for line in table.splitlines() if line.startswith("| ")]
    return {api: int(milliseconds) for api, milliseconds in rows[1:]}
