"""Cuts a stream of bytes into frames. No I/O: whoever has a socket asks where to put the bytes."""

from __future__ import annotations

import struct

from ottla.wire.protocol_error import ProtocolError

_SIZE = struct.Struct(">i")
# Far above what brokers send, and below what the first bytes of other protocols (TLS, HTTP) look like as a size.
LARGEST_FRAME_BYTES = 256 << 20
_SPARE_BYTES = 64 * 1024


class FrameReceiver:
    """Small frames come many at a time through a common buffer; a large one is received where it will stay."""

    def __init__(self, largest_frame_bytes: int = LARGEST_FRAME_BYTES) -> None:
        self._largest_frame_bytes = largest_frame_bytes
        self._common = bytearray(_SPARE_BYTES)
        self._filled = 0
        self._frame: bytearray | None = None
        self._frame_filled = 0

    def buffer(self) -> memoryview:
        """Where the next bytes go. Good until `received` is called; never empty."""
        if self._frame is not None:
            return memoryview(self._frame)[self._frame_filled :]
        return memoryview(self._common)[self._filled :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """The frames, without their sizes, that `count` more bytes complete; ProtocolError for an impossible size."""
        if self._frame is None:
            self._filled += count
            return self._cut()
        self._frame_filled += count
        if self._frame_filled < len(self._frame):
            return []
        frame, self._frame = self._frame, None
        return [frame]

    def _cut(self) -> list[bytes | bytearray]:
        frames: list[bytes | bytearray] = []
        view = memoryview(self._common)
        position = 0
        while self._filled - position >= _SIZE.size:
            (size_bytes,) = _SIZE.unpack_from(view, position)
            if not 0 <= size_bytes <= self._largest_frame_bytes:
                raise ProtocolError(f"a frame of {size_bytes} bytes")
            start = position + _SIZE.size
            end = start + size_bytes
            if end > self._filled:
                if size_bytes > _SPARE_BYTES // 2:
                    self._begin_large(view[start : self._filled], size_bytes)
                    position = self._filled
                break
            frames.append(bytes(view[start:end]))
            position = end
        rest = bytes(view[position : self._filled])
        view[: len(rest)] = rest
        self._filled = len(rest)
        return frames

    def _begin_large(self, beginning: memoryview, size_bytes: int) -> None:
        self._frame = bytearray(size_bytes)
        self._frame_filled = len(beginning)
        self._frame[: len(beginning)] = beginning
