from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.errors import ProtocolError
from ottla.wire.varint import read_uvarint, skip_tags, uvarint


@given(st.integers(0, 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_at_a_position(value: int, before: bytes, after: bytes) -> None:
    encoded = uvarint(value)
    position = len(before) + len(encoded)
    assert read_uvarint(before + encoded + after, len(before)) == (value, position)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (16383, "ff7f"), (2**31 - 1, "ffffffff07")],
)
def test_known_bytes(value: int, encoded: str) -> None:
    assert uvarint(value).hex() == encoded


@pytest.mark.parametrize("encoded", ["8080808008", "ffffffff0f", "808080808001", "ffffffffffffffffff01"])
def test_more_than_31_bits_are_refused(encoded: str) -> None:
    with pytest.raises(ProtocolError, match="31 bits"):
        read_uvarint(bytes.fromhex(encoded), 0)


def test_tags_are_skipped_by_their_sizes() -> None:
    data = bytes.fromhex("05 02 aabb 8101 00 ff")
    assert skip_tags(data, 0, 2) == 7


def test_a_tag_does_not_reach_past_the_end() -> None:
    with pytest.raises(ProtocolError, match="3 bytes, 2 left"):
        skip_tags(bytes.fromhex("05 03 aabb"), 0, 1)
