"""Rows under a heading, in columns as wide as what is in them, and counts of things."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def table(heading: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines. Numbers stand to the right; what is None is a dash."""
    texts = [list(heading), *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    right = [_is_of_numbers([row[index] for row in rows]) for index in range(len(heading))]
    return [_GAP.join(map(_aligned, line, widths, right)).rstrip() for line in texts]


def _is_of_numbers(column: Sequence[object]) -> bool:
    cells = [cell for cell in column if cell is not None]
    return bool(cells) and all(isinstance(cell, int) for cell in cells)


def _aligned(text: str, width: int, to_the_right: bool) -> str:
    return text.rjust(width) if to_the_right else text.ljust(width)


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
