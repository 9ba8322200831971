"""Positions keep their order as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.pipelines.tables.position import InvalidPosition, decode_position, encode_position

TEXTS = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), max_size=5)
PARTS = st.one_of(st.integers(-(10**20), 10**20), TEXTS)


def order(parts: list[int | str]) -> list[tuple[bool, int, bytes]]:
    """Numbers before texts, texts by their bytes."""
    return [(True, 0, part.encode()) if isinstance(part, str) else (False, part, b"") for part in parts]


@given(st.lists(PARTS, min_size=1, max_size=4), st.lists(PARTS, min_size=1, max_size=4))
def test_the_text_sorts_as_the_position_does(one: list[int | str], other: list[int | str]) -> None:
    first, second = encode_position(one).encode(), encode_position(other).encode()
    assert (first < second) == (order(one) < order(other))
    assert (first == second) == (one == other)


@given(st.lists(PARTS, min_size=1, max_size=4))
def test_it_can_be_read_back(parts: list[int | str]) -> None:
    assert decode_position(encode_position(parts)) == parts


@pytest.mark.parametrize("position", [[], None, 1.5, True, [[1]], "a\x1fb", 10**26])
def test_what_has_no_place_in_an_order_is_refused(position: object) -> None:
    with pytest.raises(InvalidPosition):
        encode_position(position)
