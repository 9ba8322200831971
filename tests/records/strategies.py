"""Records as Hypothesis makes them."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import strategies as st

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
NULLABLE = st.none() | st.binary(max_size=300)
HEADERS = st.lists(st.tuples(st.text(max_size=20), NULLABLE), max_size=4)


class Draft(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


DRAFTS = st.lists(st.builds(Draft, INT64 | st.integers(0, 1 << 41), NULLABLE, NULLABLE, HEADERS), max_size=30)
