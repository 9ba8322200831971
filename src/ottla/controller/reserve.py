"""Room on the disk that is kept for the moment when there is no other: who wants to delete must write first."""

from __future__ import annotations

import contextlib
import os

CHUNK_BYTES = 64 << 10  # what others take while one is given back is gone
CHUNKS = 64
SUFFIX = "-reserve"
BLOCK_BYTES = 512  # in which the system counts what a file takes up


class Reserve:
    """A file of nothing, which is given back chunk by chunk."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fill(self) -> None:
        """Take as much of the room as the disk has."""
        with contextlib.suppress(OSError):
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            taken = _chunks(descriptor)
            try:
                while taken < CHUNKS:
                    os.posix_fallocate(descriptor, taken * CHUNK_BYTES, CHUNK_BYTES)
                    taken += 1
            finally:
                os.ftruncate(descriptor, taken * CHUNK_BYTES)
                os.close(descriptor)

    def release(self) -> bool:
        """Give a chunk back; False if there is none."""
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            chunks = _chunks(descriptor)
            if chunks:
                os.ftruncate(descriptor, (chunks - 1) * CHUNK_BYTES)
        finally:
            os.close(descriptor)
        return chunks > 0


def _chunks(descriptor: int) -> int:
    return os.fstat(descriptor).st_blocks * BLOCK_BYTES // CHUNK_BYTES
