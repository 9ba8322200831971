"""How columns lie in the rows of a binlog: what row_image.py is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

# How a column lies in a row, and what is written of it.
SIGNED, UNSIGNED, WIDE_UNSIGNED, FLOAT, DOUBLE, DECIMAL = 1, 2, 3, 4, 5, 6
DATE, TIME, DATETIME, TIMESTAMP, TIMESTAMP2, DATETIME2, TIME2, YEAR = 7, 8, 9, 10, 11, 12, 13, 14
BIT, WIDE_BIT, CHOICE, TEXT, OTHER = 15, 16, 17, 18, 19


class ColumnLayout(NamedTuple):
    """`size` is of the value, or of the length in front of it; `extra` what else the kind must know.

    Of a DECIMAL they are digits and digits behind the point, of the times `extra` is the digits behind the second.
    `make` gives the JSON of one value: of the bytes of OTHER, of the number of a CHOICE.
    """

    name: str
    kind: int
    size: int = 0
    extra: int = 0
    make: Callable[[Any], bytes] | None = None
