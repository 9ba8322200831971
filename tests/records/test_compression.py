"""The four codecs: both ways, in the framing that Kafka uses, within bounds."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import subprocess
import sys
from unittest.mock import patch

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import compression
from ottla.records.batch import Buffer
from ottla.records.compression import (
    GZIP,
    LZ4,
    NAMES,
    NONE,
    SNAPPY,
    ZSTD,
    CompressionFailed,
    TooLarge,
    codec_number,
    compress,
    decompress,
)

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
each_codec = pytest.mark.parametrize("codec", CODECS, ids=[NAMES[codec] for codec in CODECS])
TEXT = b"the quick brown fox jumps over the lazy dog, " * 3000  # more than one block of any codec
NOISE = os.urandom(150_000)


@each_codec
@given(data=st.binary(max_size=2000) | st.sampled_from([TEXT, NOISE, bytes(100_000)]))
def test_round_trip(codec: int, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data))), len(data)) == data


def test_none_is_the_data_itself() -> None:
    data = bytearray(b"data")
    assert decompress(NONE, data) is data
    assert compress(NONE, data) == data


def test_names() -> None:
    assert [codec_number(name) for name in ("none", "gzip", "snappy", "lz4", "zstd")] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="brotli"):
        codec_number("brotli")


@pytest.mark.parametrize("codec", [-1, 5, 7])
def test_unknown_numbers(codec: int) -> None:
    with pytest.raises(CompressionFailed, match="unknown codec"):
        decompress(codec, b"")
    with pytest.raises(CompressionFailed, match="unknown codec"):
        compress(codec, b"")


@pytest.mark.parametrize(("codec", "levels"), [(GZIP, (-1, 1, 9)), (LZ4, (1, 9, 17)), (ZSTD, (-131072, -1, 1, 22))])
def test_levels(codec: int, levels: tuple[int, ...]) -> None:
    sizes = []
    for level in levels:
        compressed = compress(codec, TEXT + NOISE[:1000], level)
        sizes.append(len(compressed))
        assert decompress(codec, compressed) == TEXT + NOISE[:1000]
    assert sizes[-1] <= sizes[0]


def test_snappy_is_framed_in_blocks_as_java_does_it() -> None:
    compressed = bytes(compress(SNAPPY, TEXT))
    assert compressed[:16] == b"\x82SNAPPY\0\0\0\0\1\0\0\0\1"
    position, sizes = 16, []
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        block = bytes(cramjam.snappy.decompress_raw(compressed[position + 4 : position + 4 + size]))
        sizes.append(len(block))
        position += 4 + size
    assert sizes[:-1] == [32 * 1024] * (len(TEXT) // (32 * 1024))
    assert sum(sizes) == len(TEXT)


def test_snappy_without_a_frame_is_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT))) == TEXT


def test_lz4_header_is_what_kafka_writes() -> None:
    """Version 1, independent blocks, no checksums, no size; blocks of 64 KiB; the header's own checksum."""
    compressed = bytes(compress(LZ4, TEXT))
    assert compressed[:4] == struct.pack("<I", 0x184D2204)
    assert compressed[4:6] == bytes([0x60, 0x40])
    info = lz4.frame.get_frame_info(compressed)
    assert not info["content_checksum"]
    assert info["content_size"] == 0


def test_lz4_reads_other_headers() -> None:
    for linked in (False, True):
        for checksum in (False, True):
            data = lz4.frame.compress(TEXT, block_linked=linked, content_checksum=checksum, store_size=checksum)
            assert decompress(LZ4, data) == TEXT


@given(
    st.sampled_from([b"", b"x", TEXT[:5000], NOISE[:3000]]),
    st.booleans(),
    st.booleans(),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
    st.sampled_from([b"", b"junk", struct.pack("<II", 0x184D2A50, 2) + b"ab"]),
    st.booleans(),
)
def test_lz4_at_once_and_in_pieces_are_the_same(
    text: bytes, has_size: bool, has_checksum: bool, changes: list[tuple[int, int]], more: bytes, is_more_first: bool
) -> None:
    data = bytearray(lz4.frame.compress(text, store_size=has_size, content_checksum=has_checksum))
    for position, byte in changes:
        data[position % len(data)] = byte
    stream = more + data if is_more_first else data + more
    outcomes: list[Buffer | None] = []
    for ratio in (255, 1 << 60):
        with patch.object(compression, "_LZ4_MOST_RATIO", ratio):
            try:
                outcomes.append(decompress(LZ4, bytes(stream), 1 << 23))
            except CompressionFailed:
                outcomes.append(None)
    assert outcomes[0] == outcomes[1]


def test_an_announced_size_that_is_a_lie_costs_nothing() -> None:
    data = bytearray(lz4.frame.compress(TEXT[:100], store_size=True))
    data[6:14] = struct.pack("<Q", 1 << 50)
    data[14] = xxh32(bytes(data[4:14])) >> 8 & 0xFF
    assert lz4.frame.get_frame_info(data)["content_size"] == 1 << 50
    with pytest.raises(CompressionFailed):
        decompress(LZ4, data)


def xxh32(data: bytes) -> int:
    """The hash of fewer than 16 bytes, as the header of a frame has it."""
    hashed = 374761393 + len(data)
    while len(data) >= 4:
        hashed = _rotated(hashed + int.from_bytes(data[:4], "little") * 3266489917, 17) * 668265263
        data = data[4:]
    for byte in data:
        hashed = _rotated(hashed + byte * 374761393, 11) * 2654435761
    hashed &= 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 15) * 2246822519 & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * 3266489917 & 0xFFFFFFFF
    return hashed ^ hashed >> 16


def _rotated(number: int, bits: int) -> int:
    number &= 0xFFFFFFFF
    return (number << bits | number >> 32 - bits) & 0xFFFFFFFF


def test_zstd_frames_without_their_size_are_read() -> None:
    compressor = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    assert decompress(ZSTD, compressor.compress(TEXT)) == TEXT


def test_streams_of_several_parts() -> None:
    assert decompress(GZIP, gzip.compress(b"one ") + gzip.compress(b"two")) == b"one two"
    assert decompress(ZSTD, bytes(compress(ZSTD, b"one ")) + bytes(compress(ZSTD, b"two"))) == b"one two"


@pytest.mark.parametrize(("codec", "is_read"), [(GZIP, True), (LZ4, True), (SNAPPY, False), (ZSTD, False)])
def test_bytes_behind_the_end_are_taken_as_java_takes_them(codec: int, is_read: bool) -> None:
    data = bytes(compress(codec, TEXT)) + b"junk"
    if is_read:
        assert decompress(codec, data) == TEXT
    else:
        with pytest.raises(CompressionFailed):
            decompress(codec, data)


@each_codec
def test_every_cut_is_seen(codec: int) -> None:
    whole = bytes(compress(codec, TEXT[:50_000]))
    ends = {0, len(whole)} if codec == ZSTD else {len(whole)}  # no zstd frame at all is an empty stream
    if codec == SNAPPY:  # its frame has no end mark: a cut between blocks is a shorter stream
        position = 16
        while position < len(whole):
            ends.add(position)
            position += 4 + struct.unpack_from(">i", whole, position)[0]
    for end in range(len(whole)):
        if end not in ends:
            with pytest.raises(CompressionFailed):
                decompress(codec, whole[:end])


@each_codec
@given(data=st.data())
def test_changed_bytes_end_in_data_or_the_one_error(codec: int, data: st.DataObject) -> None:
    changed = bytearray(compress(codec, TEXT[:5000]))
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CompressionFailed):
        assert len(decompress(codec, changed, 1 << 20)) <= 1 << 20


@each_codec
@given(data=st.binary(max_size=200))
def test_random_bytes_end_in_data_or_the_one_error(codec: int, data: bytes) -> None:
    with contextlib.suppress(CompressionFailed):
        assert len(decompress(codec, data, 1 << 20)) <= 1 << 20


@each_codec
def test_limit_is_exact(codec: int) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    for limit_bytes in (0, 1, 1000, len(TEXT) - 1):
        with pytest.raises(TooLarge, match="more than"):
            decompress(codec, compressed, limit_bytes)


@each_codec
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: int) -> None:
    """64 MiB of zeros are refused by a process that may have 24 MiB more than it has."""
    bomb = bytes(compress(codec, bytes(1 << 26)))
    program = f"""
import resource, sys
from ottla.records.compression import TooLarge, compress, decompress
decompress({codec}, compress({codec}, b"loads the library"))
bomb = sys.stdin.buffer.read()
pages = int(open("/proc/self/statm").read().split()[0])
size = pages * resource.getpagesize() + (24 << 20)
resource.setrlimit(resource.RLIMIT_AS, (size, size))
try:
    decompress({codec}, bomb, 1 << 20)
except TooLarge:
    print("refused")
"""
    ended = subprocess.run([sys.executable, "-c", program], input=bomb, capture_output=True, check=False)
    assert ended.stdout == b"refused\n", ended.stderr.decode()


def test_a_snappy_block_cannot_claim_more_than_it_has() -> None:
    claims_4_gib = b"\xff\xff\xff\xff\x0f" + b"x" * 10
    with pytest.raises(TooLarge):
        decompress(SNAPPY, claims_4_gib, 1 << 20)
    with pytest.raises(CompressionFailed, match="are left"):
        decompress(SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", -1) + b"x" * 10)
    with pytest.raises(CompressionFailed, match="are left"):
        decompress(SNAPPY, b"\x82SNAPPY\0\0\0\0\1\0\0\0\1" + struct.pack(">i", 1 << 30) + b"x" * 10)


def test_libraries_are_loaded_when_first_used() -> None:
    program = (
        "import sys, ottla.records.build, ottla.records.read;"
        "print([name for name in ('cramjam', 'lz4', 'zstandard') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
