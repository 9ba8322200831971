"""The records of a batch while it is written a portion at a time, compressed as they come."""

from __future__ import annotations

from collections.abc import Callable

from ottla.records.batch import HEADER_SIZE, Buffer
from ottla.records.compression import Compressor, compress

COMPRESSED_PIECE_BYTES = 1 << 18  # given to the compressor at once

Job = Callable[[], None]


class GrowingBatch:
    """Room for a header, and behind it what was compressed so far.

    Compression is slow work: `add` and `finish` hand it out as a job, to be run on any thread before the next call.
    """

    def __init__(self, codec: int, level: int | None = None) -> None:
        self.bytes = bytearray(HEADER_SIZE)
        self._codec = codec
        self._level = level
        self._compressor: Compressor | None = None
        self._waiting = bytearray()

    def add(self, area: Buffer) -> Job | None:
        """Whole records behind those that are there."""
        self._waiting += area
        return self._compress if len(self._waiting) >= COMPRESSED_PIECE_BYTES else None

    def _compress(self) -> None:
        if self._compressor is None:
            self._compressor = Compressor(self._codec, self._level)
        self.bytes += self._compressor.add(self._waiting)
        self._waiting = bytearray()

    def finish(self) -> None:
        if self._compressor is None:  # all at once, which is quicker
            self.bytes += compress(self._codec, self._waiting, self._level)
        else:
            self._compress()
            self.bytes += self._compressor.finish()
