"""Decompression in pieces: a compressed batch can become gigabytes, and nobody has to hold them at once.

Each piece takes about a millisecond to make, so that others can be let in between.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from ottla.records.batch import Buffer
from ottla.records.compression import (
    GZIP,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    CompressionFailed,
    TooLarge,
    check_zstd_frames,
    is_gzip,
    new_gzip_inflater,
    snappy_blocks,
)

PIECE_BYTES = 1 << 18
INPUT_BYTES = 1 << 14  # given at once to a decompressor that copies what it has no room for


def decompress_pieces(codec: int, data: Buffer, limit_bytes: int | None, block_limit_bytes: int) -> Iterator[Buffer]:
    """What `decompress` returns, piece by piece, some of them empty; TooLarge when more than `limit_bytes` come out.

    `block_limit_bytes`: snappy has blocks of any size, which cannot be cut; larger ones are TooLarge as well.
    """
    made = 0
    for piece in _pieces(codec, memoryview(data), block_limit_bytes):
        made += len(piece)
        if limit_bytes is not None and made > limit_bytes:
            raise TooLarge(f"the batch decompresses to more than {limit_bytes} bytes")
        yield piece


def _pieces(codec: int, data: memoryview, block_limit_bytes: int) -> Iterator[Buffer]:
    if codec == NONE:
        return _cut(data)
    if codec == GZIP:
        return _gzip(data)
    if codec == SNAPPY:
        return _snappy(data, block_limit_bytes)
    if codec == LZ4:
        return _lz4(data)
    if codec == ZSTD:
        return _zstd(data)
    raise CompressionFailed(f"unknown codec {codec}")


def _cut(data: Buffer) -> Iterator[memoryview]:
    view = memoryview(data)
    for start in range(0, len(view), PIECE_BYTES):
        yield view[start : start + PIECE_BYTES]


def _gzip(data: memoryview) -> Iterator[bytes]:
    """All members of the stream. What follows the last and is no member is not looked at, as in Java."""
    position = 0  # of what the inflater has not been given yet
    rest: Buffer = b""
    inflater = new_gzip_inflater()
    while True:
        if not rest:
            rest = data[position : position + INPUT_BYTES]
            position += len(rest)
        try:
            piece = inflater.decompress(rest, PIECE_BYTES)
        except zlib.error as error:
            raise CompressionFailed(f"gzip: {error}") from None
        rest = inflater.unconsumed_tail
        yield piece
        if inflater.eof:
            behind = bytes(inflater.unused_data) + bytes(data[position : position + 2])
            if not is_gzip(behind):
                return
            rest = inflater.unused_data
            inflater = new_gzip_inflater()
        elif not piece and not rest and position >= len(data):
            raise CompressionFailed("gzip: the stream is cut")


def _snappy(data: memoryview, block_limit_bytes: int) -> Iterator[memoryview]:
    for block in snappy_blocks(data, block_limit_bytes):
        yield from _cut(block)


def _lz4(data: memoryview) -> Iterator[bytes]:
    """The first frame. What follows it is not looked at, as in Java."""
    from lz4 import frame

    decompressor = frame.LZ4FrameDecompressor()
    position = 0
    while not decompressor.eof:
        given: Buffer = b""
        if decompressor.needs_input:
            given = data[position : position + INPUT_BYTES]
            position += len(given)
            if not given:
                raise CompressionFailed("lz4: the frame is cut")
        try:
            piece = decompressor.decompress(given, PIECE_BYTES)
        except (RuntimeError, EOFError) as error:
            raise CompressionFailed(f"lz4: {error}") from None
        if not (piece or given or decompressor.eof or decompressor.needs_input):
            raise CompressionFailed("lz4: the frame is cut")
        yield piece


def _zstd(data: memoryview) -> Iterator[bytes]:
    import zstandard

    if not data:
        return
    try:
        for _ in check_zstd_frames(data):
            yield b""
        # One of its own: it may need much memory, which goes with it.
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)
        while piece := reader.read(PIECE_BYTES):
            yield piece
    except zstandard.ZstdError as error:
        raise CompressionFailed(f"zstd: {error}") from None
