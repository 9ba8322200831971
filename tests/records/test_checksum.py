from __future__ import annotations

import crc32c as package
from hypothesis import given
from hypothesis import strategies as st

from ottla.records import checksum


@given(st.binary(max_size=200))
def test_it_is_that_of_the_package(data: bytes) -> None:
    assert checksum.crc32c(data) == checksum.crc32c(memoryview(data)) == package.crc32c(data)


def test_known_value() -> None:
    assert checksum.crc32c(b"123456789") == 0xE3069283  # the check value of CRC-32C
