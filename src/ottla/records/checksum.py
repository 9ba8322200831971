"""The checksum of batches, CRC-32C.

The package crc32c also looks up its version and prepares a command line, which takes as long as a tenth of a broker's
start. So it is imported with the first checksum, or when somebody is about to need one.
"""

from __future__ import annotations

from collections.abc import Callable

Buffer = bytes | bytearray | memoryview


def _first(data: Buffer) -> int:
    global compute
    from crc32c import crc32c

    compute = crc32c
    return crc32c(data)


compute: Callable[[Buffer], int] = _first  # from the first call on that of the package, without a call in between


def crc32c(data: Buffer) -> int:
    return compute(data)


def prepare() -> None:
    """The first checksum is to take no longer than others."""
    crc32c(b"")
