"""The checksum of batches, CRC-32C.

The package crc32c also looks up its version and prepares a command line, which takes as long as a tenth of a broker's
start. So it is imported with the first checksum.
"""

from __future__ import annotations

from collections.abc import Callable

Buffer = bytes | bytearray | memoryview

_compute: Callable[[Buffer], int] | None = None


def crc32c(data: Buffer) -> int:
    return (_compute or _load())(data)


def _load() -> Callable[[Buffer], int]:
    global _compute
    from crc32c import crc32c as compute

    _compute = compute
    return compute
