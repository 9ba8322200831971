"""What an encoded message is made of: bytes, and ranges of files that nobody has read yet."""

from __future__ import annotations

from typing import NamedTuple, Protocol, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview


class FileRange(Protocol):
    """A run of bytes in a file, to be sent by the kernel. The wire looks only at its size."""

    @property
    def file(self) -> object: ...

    @property
    def position(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


class Joined(NamedTuple):
    """Buffers that follow each other, in the place of one that has the bytes of all."""

    buffers: tuple[Buffer, ...]

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.buffers))


Part: TypeAlias = Buffer | FileRange

BUFFERS = (bytes, bytearray, memoryview)
