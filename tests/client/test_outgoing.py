"""Frames in pieces, for a transport that takes some of them now and the rest later."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.client.network.outgoing import PIECE_BYTES, SMALL_BYTES, Outgoing, pieces
from ottla.wire.parts import Buffer

SIZES = st.one_of(st.integers(0, 20), st.integers(SMALL_BYTES - 2, SMALL_BYTES + 2), st.integers(0, 3 * PIECE_BYTES))


class Narrow:
    """A transport that is full after each `takes` writes."""

    def __init__(self, outgoing: Outgoing, takes: int) -> None:
        self._outgoing = outgoing
        self._takes = takes
        self.written: list[bytes] = []

    def is_closing(self) -> bool:
        return False

    def write(self, data: Buffer) -> None:
        self.written.append(bytes(data))
        self._outgoing.is_open = len(self.written) % self._takes != 0


@given(sizes=st.lists(SIZES, max_size=5))
def test_pieces_are_the_same_bytes_and_large_ones_are_not_copied(sizes: list[int]) -> None:
    parts = [bytearray(bytes([number + 1]) * size) for number, size in enumerate(sizes)]
    cut = list(pieces(parts))
    assert b"".join(cut) == b"".join(parts)
    assert all(0 < len(piece) <= PIECE_BYTES for piece in cut)
    assert all(len(piece) <= SMALL_BYTES or isinstance(piece, memoryview) for piece in cut)
    # No small piece is followed by one that it could have gone with.
    assert all(len(one) + len(other) > SMALL_BYTES for one, other in pairwise(cut) if isinstance(one, bytes))


@given(sizes=st.lists(SIZES, min_size=1, max_size=4), takes=st.integers(1, 3))
def test_what_is_not_taken_waits_and_keeps_its_order(sizes: list[int], takes: int) -> None:
    outgoing = Outgoing()
    transport = Narrow(outgoing, takes)
    frames = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    for frame in frames:
        outgoing.put([b"head", frame])
        outgoing.pump(transport)
    while outgoing:
        written = len(transport.written)
        outgoing.pump(transport)
        assert len(transport.written) == written  # it is full
        outgoing.is_open = True
        outgoing.pump(transport)
    assert b"".join(transport.written) == b"".join(b"head" + frame for frame in frames)


def test_at_the_end_all_of_it_goes_or_nothing() -> None:
    outgoing = Outgoing()
    outgoing.is_open = False
    transport = Narrow(outgoing, 1)
    outgoing.put([b"x" * SMALL_BYTES, b"y" * PIECE_BYTES])
    outgoing.pump(transport)
    assert not transport.written
    outgoing.pour(transport)
    assert b"".join(transport.written) == b"x" * SMALL_BYTES + b"y" * PIECE_BYTES
    outgoing.put([b"z"])
    outgoing.clear()
    assert not outgoing
