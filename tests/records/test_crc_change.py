"""Checksums of bytes whose beginning was replaced, compiled and as plain Python."""

from __future__ import annotations

from types import ModuleType

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import crc_change as installed
from tests.records.codecs import load_plain

both_ways = pytest.mark.parametrize("module", [load_plain("crc_change"), installed], ids=["plain", "installed"])


@both_ways
@given(starts=st.integers(0, 50).flatmap(lambda size: st.tuples(*[st.binary(min_size=size, max_size=size)] * 2)),
       rest=st.binary(max_size=300))  # fmt: skip
def test_the_checksum_is_that_of_the_whole(module: ModuleType, starts: tuple[bytes, bytes], rest: bytes) -> None:
    before, after = starts
    assert module.changed_crc(crc32c(before + rest), crc32c(before), crc32c(after), len(rest)) == crc32c(after + rest)


@both_ways
@pytest.mark.parametrize("size", [0, 1, 2**16 - 1, 2**20 + 7])
def test_a_long_rest(module: ModuleType, size: int) -> None:
    rest = bytes(range(256)) * (size // 256) + bytes(size % 256)
    assert module.changed_crc(crc32c(b"old" + rest), crc32c(b"old"), crc32c(b"new"), size) == crc32c(b"new" + rest)


@both_ways
def test_what_was_wrong_stays_wrong(module: ModuleType) -> None:
    """A rest that was damaged does not become sound."""
    crc = crc32c(b"old" + b"sound")
    assert module.changed_crc(crc, crc32c(b"old"), crc32c(b"new"), 5) != crc32c(b"new" + b"SOUND")
