"""The four codecs of record batches, both ways.

Whoever decompresses says how many bytes may come out, and no more than that is ever allocated: a batch of a
few bytes can claim gigabytes. The libraries are loaded when first used.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import struct
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ottla.records.batch import Buffer, CorruptBatch

if TYPE_CHECKING:
    from zstandard import ZstdCompressor

Compress = Callable[[Buffer, int | None], bytes]  # data, level
Decompress = Callable[[Buffer, int], Buffer]  # data, limit in bytes

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")  # by number

DEFAULT_LIMIT_BYTES = 1 << 30

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)  # version, lowest version that can read it
_XERIAL_BLOCK_BYTES = 32 * 1024
_BLOCK_SIZE = struct.Struct(">i")
_GZIP_WINDOW = 31  # 32 KiB, with gzip's header and checksum
_GZIP_MAGIC = b"\x1f\x8b"
_PIECE_BYTES = 64 * 1024
_ROOM_BYTES = 4 << 20  # of which only what was used once takes memory
_LZ4_MOST_RATIO = 255  # of what comes out to what goes in
_ZSTD_DEFAULT_LEVEL = 3
_STEP_BLOCKS = 1000
_ZSTD_REPEATED_BYTE = 1  # the kind of block that is one byte, many times


class CompressionFailed(CorruptBatch):
    """The bytes are not what their codec says, or more would come out of them than is allowed."""


class TooLarge(CompressionFailed):
    """More would come out than is allowed."""


def codec_number(name: str) -> int:
    """ValueError for a name that is no codec's."""
    try:
        return NAMES.index(name)
    except ValueError:
        raise ValueError(f"no codec {name!r}: they are {', '.join(NAMES)}") from None


def compress(codec: int, data: Buffer, level: int | None = None) -> Buffer:
    """`level` as in the topic settings compression.gzip.level and its like; snappy has none."""
    if codec == NONE:
        return data
    return _compressor(codec)[0](data, level)


def decompress(codec: int, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """CompressionFailed for every kind of bad input."""
    if codec == NONE:
        return data
    return _compressor(codec)[1](data, limit_bytes)


class _Room(threading.local):
    """Memory to look at what a batch holds, used again and again: new memory costs as much as filling it."""

    def __init__(self) -> None:
        self.view = memoryview(mmap.mmap(-1, _ROOM_BYTES))


@functools.cache
def _room() -> _Room:
    return _Room()


def decompress_to_look(codec: int, data: Buffer, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Buffer:
    """As `decompress`, for whoever is done with it before the next call: this thread may get the same memory again."""
    if codec == LZ4:
        from ottla.records.lz4_blocks import decompress_blocks

        room = _room().view[:limit_bytes]
        size = decompress_blocks(data, room)
        if size is not None:
            return room[:size]
    return decompress(codec, data, limit_bytes)


def _compressor(codec: int) -> tuple[Compress, Decompress]:
    if not GZIP <= codec <= ZSTD:
        raise CompressionFailed(f"unknown codec {codec}")
    return _COMPRESSORS[codec - GZIP]


def _too_large(limit_bytes: int) -> TooLarge:
    return TooLarge(f"the batch decompresses to more than {limit_bytes} bytes")


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress(data) + compressor.flush()


def _decompress_gzip(data: Buffer, limit_bytes: int) -> Buffer:
    """All members of the stream. What follows the last and is no member is not looked at, as in Java."""
    out = bytearray()
    rest: Buffer = data
    while True:
        inflater = new_gzip_inflater()
        try:
            out += inflater.decompress(rest, limit_bytes + 1 - len(out))
        except zlib.error as error:
            raise CompressionFailed(f"gzip: {error}") from None
        if len(out) > limit_bytes:
            raise _too_large(limit_bytes)
        if not inflater.eof:
            raise CompressionFailed("gzip: the stream is cut")
        rest = inflater.unused_data
        if not is_gzip(rest):
            return out


def new_gzip_inflater() -> zlib._Decompress:
    return zlib.decompressobj(_GZIP_WINDOW)


def is_gzip(data: bytes) -> bool:
    """Whether another member begins here."""
    return data.startswith(_GZIP_MAGIC)


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(_BLOCK_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    parts = []
    left = limit_bytes
    for part in snappy_blocks(memoryview(data), limit_bytes):
        left -= len(part)
        if left < 0:
            raise _too_large(limit_bytes)
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def snappy_blocks(view: memoryview, limit_bytes: int) -> Iterator[bytes]:
    """Its blocks, none larger than the limit. Java frames them, librdkafka may send one that is bare."""
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        yield _snappy_block(view, limit_bytes)
        return
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CompressionFailed("snappy: the stream is cut")
    while position < len(view):
        if len(view) - position < _BLOCK_SIZE.size:
            raise CompressionFailed("snappy: a block's size is cut")
        (size,) = _BLOCK_SIZE.unpack_from(view, position)
        position += _BLOCK_SIZE.size
        if not 0 <= size <= len(view) - position:
            raise CompressionFailed(f"snappy: a block of {size} bytes, {len(view) - position} are left")
        yield _snappy_block(view[position : position + size], limit_bytes)
        position += size


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    from cramjam import DecompressionError, snappy

    try:
        if snappy.decompress_raw_len(block) > limit_bytes:
            raise _too_large(limit_bytes)
        return bytes(snappy.decompress_raw(block))
    except DecompressionError as error:
        raise CompressionFailed(f"snappy: {error}") from None


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    from lz4 import frame

    # What Kafka's own writer does: independent blocks of 64 KiB, no checksum of the content, no size.
    compressed: bytes = frame.compress(
        data,
        compression_level=0 if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        store_size=False,
    )
    return compressed


def _decompress_lz4(data: Buffer, limit_bytes: int) -> Buffer:
    """The first frame. What follows it is not looked at, as in Java."""
    from lz4 import frame

    try:
        # At once, which is four times as fast, where that cannot become too large, nor says that it will.
        if len(data) * _LZ4_MOST_RATIO <= limit_bytes:
            announced: int = frame.get_frame_info(data)["content_size"]
            if announced <= limit_bytes:
                whole: bytes = frame.decompress(data)
                return whole
        return _decompress_lz4_in_pieces(data, limit_bytes)
    except (RuntimeError, EOFError) as error:
        raise CompressionFailed(f"lz4: {error}") from None


def _decompress_lz4_in_pieces(data: Buffer, limit_bytes: int) -> Buffer:
    """In pieces that grow: the library allocates as much as it is allowed to return."""
    from lz4 import frame

    out = bytearray()
    decompressor = frame.LZ4FrameDecompressor()
    rest = data
    while not decompressor.eof:
        piece = decompressor.decompress(rest, min(_PIECE_BYTES + len(out), limit_bytes + 1 - len(out)))
        rest = b""
        out += piece
        if len(out) > limit_bytes:
            raise _too_large(limit_bytes)
        if not piece and not decompressor.eof:
            raise CompressionFailed("lz4: the frame is cut")
    return out


class _ZstdContexts(threading.local):
    """Dear to make, and one thread's own."""

    def __init__(self) -> None:
        import zstandard

        self.decompressor = zstandard.ZstdDecompressor()
        self.compressors: dict[int, ZstdCompressor] = {}


@functools.cache
def _zstd_contexts() -> _ZstdContexts:
    return _ZstdContexts()


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    level = _ZSTD_DEFAULT_LEVEL if level is None else level
    compressors = _zstd_contexts().compressors
    if level not in compressors:
        compressors[level] = zstandard.ZstdCompressor(level=level)
    return compressors[level].compress(data)


def _decompress_zstd(data: Buffer, limit_bytes: int) -> Buffer:
    import zstandard

    decompressor = _zstd_contexts().decompressor
    if not data:
        return b""
    try:
        if 0 <= zstandard.frame_content_size(data) <= limit_bytes:
            with contextlib.suppress(zstandard.ZstdError):  # several frames, or a bad one: what follows will tell
                return decompressor.decompress(data, allow_extra_data=False)
        for _ in check_zstd_frames(memoryview(data)):
            pass
        out = bytearray()
        reader = decompressor.stream_reader(data, read_across_frames=True)
        while piece := reader.read(min(_PIECE_BYTES + len(out), limit_bytes + 1 - len(out))):
            out += piece
            if len(out) > limit_bytes:
                raise _too_large(limit_bytes)
    except zstandard.ZstdError as error:
        raise CompressionFailed(f"zstd: {error}") from None
    return out


def check_zstd_frames(data: memoryview) -> Iterator[None]:
    """See that whole frames fill the data, in steps. The library's reader takes a cut frame for the end."""
    import zstandard

    position = blocks = 0
    while position < len(data):
        frame = data[position:]
        position += zstandard.frame_header_size(frame)
        is_last = False
        while not is_last:
            block = int.from_bytes(data[position : position + 3], "little")
            is_last, kind, size = bool(block & 1), block >> 1 & 3, block >> 3
            position += 3 + (1 if kind == _ZSTD_REPEATED_BYTE else size)
            if position > len(data):
                raise CompressionFailed("zstd: the frame is cut")
            blocks += 1
            if blocks % _STEP_BLOCKS == 0:
                yield
        position += 4 * zstandard.get_frame_parameters(frame).has_checksum
    if position > len(data):
        raise CompressionFailed("zstd: the checksum is cut")


_COMPRESSORS: tuple[tuple[Compress, Decompress], ...] = (
    (_compress_gzip, _decompress_gzip),
    (_compress_snappy, _decompress_snappy),
    (_compress_lz4, _decompress_lz4),
    (_compress_zstd, _decompress_zstd),
)


class Compressor:
    """Compresses what comes piece by piece into one stream, as `compress` would the whole."""

    def __init__(self, codec: int, level: int | None = None) -> None:
        self._add, self._finish = _STREAMS[codec](level)

    def add(self, data: Buffer) -> bytes:
        return self._add(data)

    def finish(self) -> bytes:
        return self._finish()


_Stream = tuple[Callable[[Buffer], bytes], Callable[[], bytes]]


def _stream_none(level: int | None) -> _Stream:
    return bytes, bytes


def _stream_gzip(level: int | None) -> _Stream:
    compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    return compressor.compress, compressor.flush


def _stream_snappy(level: int | None) -> _Stream:
    """Whole blocks as they fill, with the header before the first."""
    waiting = bytearray()
    head = [_XERIAL_HEADER]

    def add(data: Buffer) -> bytes:
        waiting.extend(data)
        whole_bytes = len(waiting) // _XERIAL_BLOCK_BYTES * _XERIAL_BLOCK_BYTES
        return blocks(whole_bytes)

    def blocks(size_bytes: int) -> bytes:
        compressed = _compress_snappy(bytes(waiting[:size_bytes]), None)[len(_XERIAL_HEADER) :]
        del waiting[:size_bytes]
        return (head.pop() if head else b"") + compressed

    return add, lambda: blocks(len(waiting))


def _stream_lz4(level: int | None) -> _Stream:
    from lz4 import frame

    compressor = frame.LZ4FrameCompressor(
        compression_level=0 if level is None else level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
    )
    head: list[bytes] = [compressor.begin()]

    def add(data: Buffer) -> bytes:
        compressed: bytes = compressor.compress(data)
        return (head.pop() if head else b"") + compressed

    def finish() -> bytes:
        rest: bytes = compressor.flush()
        return (head.pop() if head else b"") + rest

    return add, finish


def _stream_zstd(level: int | None) -> _Stream:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=_ZSTD_DEFAULT_LEVEL if level is None else level).compressobj()
    return compressor.compress, compressor.flush


_STREAMS: tuple[Callable[[int | None], _Stream], ...] = (
    _stream_none,
    _stream_gzip,
    _stream_snappy,
    _stream_lz4,
    _stream_zstd,
)
