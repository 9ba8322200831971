"""The usual LZ4 frames, block by block: what the library for frames makes of them, or None."""

from __future__ import annotations

import os
import threading

import lz4.frame
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ottla.records.compression import (
    LZ4,
    NAMES,
    CompressionFailed,
    TooLarge,
    compress,
    decompress,
    decompress_to_look,
)
from ottla.records.lz4_blocks import HEADER_SIZE, HEADERS, decompress_blocks

ROOM_BYTES = 1 << 20
TEXT = b"the quick brown fox jumps over the lazy dog, " * 3000
NOISE = os.urandom(150_000)
BLOCK_SIZES = {
    64 << 10: lz4.frame.BLOCKSIZE_MAX64KB,
    256 << 10: lz4.frame.BLOCKSIZE_MAX256KB,
    1 << 20: lz4.frame.BLOCKSIZE_MAX1MB,
    4 << 20: lz4.frame.BLOCKSIZE_MAX4MB,
}


def blocks_of(data: bytes, room_bytes: int = ROOM_BYTES) -> bytes | None:
    room = memoryview(bytearray(room_bytes))
    size = decompress_blocks(data, room)
    return None if size is None else bytes(room[:size])


def frame_of(data: bytes, **how: int | bool) -> bytes:
    usual: dict[str, int | bool] = {"block_linked": False, "store_size": False}
    compressed: bytes = lz4.frame.compress(data, **usual | how)
    return compressed


@pytest.mark.parametrize(("header", "block_bytes"), HEADERS.items())
def test_the_headers_are_those_that_the_library_writes(header: bytes, block_bytes: int) -> None:
    data = (TEXT + NOISE) * 20  # more than one block of any size
    written = frame_of(data, block_size=BLOCK_SIZES[block_bytes])
    assert written[:HEADER_SIZE] == header
    assert blocks_of(written, len(data)) == data


@given(st.binary(max_size=2000) | st.sampled_from([TEXT, NOISE, bytes(200_000), TEXT + NOISE]))
def test_what_is_compressed_here_is_usual(data: bytes) -> None:
    assert blocks_of(bytes(compress(LZ4, data))) == data


def test_room_that_is_just_enough_and_room_that_is_not() -> None:
    for data in (TEXT, NOISE):
        compressed = bytes(compress(LZ4, data))
        assert blocks_of(compressed, len(data)) == data
        assert blocks_of(compressed, len(data) - 1) is None
        assert blocks_of(compressed, 0) is None


@pytest.mark.parametrize(
    "how",
    [{"block_linked": True}, {"store_size": True}, {"content_checksum": True}, {"block_checksum": True}],
    ids=lambda how: next(iter(how)),
)
def test_what_is_not_usual_is_left_to_the_library(how: dict[str, bool]) -> None:
    compressed = frame_of(TEXT, **how)
    assert blocks_of(compressed) is None
    assert decompress_to_look(LZ4, compressed) == TEXT


def test_what_follows_the_frame_is_not_looked_at() -> None:
    assert blocks_of(bytes(compress(LZ4, TEXT)) + b"more") == TEXT


def test_every_cut_is_noticed() -> None:
    compressed = bytes(compress(LZ4, TEXT[:300]))
    for size in range(len(compressed)):
        assert blocks_of(compressed[:size]) is None


FRAMES = [bytes(compress(LZ4, data)) for data in (b"", TEXT[:90], TEXT[:70_000], NOISE[:70], TEXT + NOISE[:70_000])]
EMPTY_BLOCK = FRAMES[0][:HEADER_SIZE] + b"\0\0\0\x80" + FRAMES[1][HEADER_SIZE:]


@given(st.sampled_from(FRAMES), st.lists(st.tuples(st.integers(0, 200_000), st.integers(0, 255)), max_size=3))
@example(EMPTY_BLOCK, [])
def test_what_is_changed_anywhere_is_what_the_library_finds(frame: bytes, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(frame)
    for position, byte in changes:
        changed[position % len(changed)] = byte
    got = blocks_of(bytes(changed))
    if got is not None:
        assert got == decompress(LZ4, changed)
    outcomes = []
    for way in (decompress, decompress_to_look):
        try:
            outcomes.append(bytes(way(LZ4, changed, ROOM_BYTES)))
        except CompressionFailed as failure:
            outcomes.append(repr(failure).encode())
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("codec", range(len(NAMES)), ids=NAMES)
def test_to_look_gives_the_same_for_each_codec(codec: int) -> None:
    compressed = compress(codec, TEXT)
    assert bytes(decompress_to_look(codec, compressed)) == TEXT


def test_the_limit_holds() -> None:
    compressed = compress(LZ4, TEXT)
    assert bytes(decompress_to_look(LZ4, compressed, len(TEXT))) == TEXT
    with pytest.raises(TooLarge):
        decompress_to_look(LZ4, compressed, len(TEXT) - 1)


def test_what_needs_more_than_the_room_is_given_its_own() -> None:
    data = bytes(20 << 20)
    assert decompress_to_look(LZ4, compress(LZ4, data)) == data


def test_threads_do_not_share_the_room() -> None:
    mine = decompress_to_look(LZ4, compress(LZ4, TEXT))
    other = threading.Thread(target=decompress_to_look, args=(LZ4, compress(LZ4, NOISE)))
    other.start()
    other.join()
    assert bytes(mine) == TEXT
    decompress_to_look(LZ4, compress(LZ4, NOISE))
    assert bytes(mine) == NOISE[: len(TEXT)]
