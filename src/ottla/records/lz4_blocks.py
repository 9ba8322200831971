"""LZ4 frames as Kafka's clients write them, decompressed block by block into memory that is there already.

The library for frames makes its output anew and lets it grow, which is a quarter of its time and more where new memory
is dear. Here is only what is usual, and whoever gets None asks that library.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import cast

from ottla.records.batch import Buffer

# Independent blocks, and no checksum, size or dictionary, by how much a block holds at most.
HEADERS = {
    bytes.fromhex("04224d18604082"): 64 << 10,
    bytes.fromhex("04224d186050fb"): 256 << 10,
    bytes.fromhex("04224d18606051"): 1 << 20,
    bytes.fromhex("04224d18607073"): 4 << 20,
}
HEADER_SIZE = 7
_BLOCK_SIZE = struct.Struct("<I")
_UNCOMPRESSED = 1 << 31

_DecompressBlock = Callable[[memoryview, memoryview, int], int]


@functools.cache
def _library() -> tuple[_DecompressBlock, type[Exception]]:
    from cramjam import DecompressionError, lz4

    return cast(_DecompressBlock, lz4.decompress_block_into), DecompressionError


def decompress_blocks(data: Buffer, room: memoryview) -> int | None:
    """How much of `room` the first frame fills; None when it is unusual, wrong, or needs more room."""
    view = memoryview(data)
    most_bytes = HEADERS.get(bytes(view[:HEADER_SIZE]))
    if most_bytes is None:
        return None
    decompress_block, failure = _library()
    position, filled, end = HEADER_SIZE, 0, len(view)
    while end - position >= _BLOCK_SIZE.size:
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        if size == 0:
            return filled
        start = position + _BLOCK_SIZE.size
        position = start + (size & ~_UNCOMPRESSED)
        if position > end:
            return None
        block, target = view[start:position], room[filled : filled + most_bytes]
        if size & _UNCOMPRESSED:
            if len(block) > len(target):
                return None
            target[: len(block)] = block
            filled += len(block)
        else:
            try:
                filled += decompress_block(block, target, len(target))
            except failure:
                return None
    return None
