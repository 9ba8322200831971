"""What went wrong, in a line, of errors that others raise."""

from __future__ import annotations

import re

MOST_CHARACTERS = 300
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_CAUSE = "↳"  # deltalake tells what lies below an error line by line
_NOISE = ("at ", "File ", "Traceback", "===", _CAUSE)


def first_line(error: BaseException) -> str:
    """Of a Java stack the part that says something; of a chain of causes the first and the last."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    telling = [line for line in lines if not line.startswith(_NOISE)]
    causes = [line.removeprefix(_CAUSE).strip() for line in lines if line.startswith(_CAUSE)]
    return ": ".join([*(telling or lines or [type(error).__name__])[:1], *causes[-1:]])[:MOST_CHARACTERS]
