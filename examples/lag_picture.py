"""The lag of tables over time, as an SVG that any browser shows."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

WIDTH, HEIGHT = 900, 360
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 50
COLOURS = ("#1f6feb", "#d4691e", "#2da44e")


def draw_lag(file: Path, progress: Sequence[dict[str, Any]], kills: Sequence[tuple[float, str]]) -> None:
    """Records behind for each table, and a line for each kill."""
    begin = min(told["time"] for told in progress)
    end = max(told["time"] for told in progress)
    most = max([told["lag_records"] or 0 for told in progress] + [1])

    def across(moment: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (moment - begin) / max(end - begin, 1e-9)

    def down(records: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * records / most

    parts = [_text(LEFT, 20, "records that a table is behind its topic, over seconds", size=14)]
    for step in range(5):
        height = down(most * step / 4)
        parts.append(_line(LEFT, height, WIDTH - RIGHT, height, "#ddd"))
        parts.append(_text(LEFT - 8, height + 4, f"{most * step / 4:,.0f}", anchor="end"))
        moment = begin + (end - begin) * step / 4
        parts.append(_text(across(moment), HEIGHT - BOTTOM + 18, f"{moment - begin:.0f} s", anchor="middle"))
    for moment, what in kills:
        if begin <= moment <= end:
            parts.append(_line(across(moment), TOP, across(moment), HEIGHT - BOTTOM, "#cf222e", dashes="4 4"))
            is_late = across(moment) > WIDTH / 2  # its words have room before the line alone
            x, anchor = (across(moment) - 4, "end") if is_late else (across(moment) + 4, "start")
            parts.append(_text(x, TOP + 10, f"kill -9 {what}", anchor=anchor, colour="#cf222e"))
    for number, name in enumerate(sorted({told["table"] for told in progress})):
        places = [told for told in progress if told["table"] == name and told["lag_records"] is not None]
        path = " ".join(f"{across(told['time']):.1f},{down(told['lag_records']):.1f}" for told in places)
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        parts.append(_text(LEFT + 180 * number, HEIGHT - 10, name, colour=colour))
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    body = "\n".join(parts)
    ground = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    file.write_text(f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n{ground}\n{body}\n</svg>\n')


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, dashes: str = "none") -> str:
    place = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {place} stroke="{colour}" stroke-dasharray="{dashes}"/>'


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start", colour: str = "#333") -> str:
    style = f'font-family="sans-serif" font-size="{size}" text-anchor="{anchor}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(text)}</text>'
