"""Cuts a stream of bytes into frames. No I/O: whoever has a socket asks where to put the bytes."""

from __future__ import annotations

import struct
from collections import deque

from ottla.records.codec import uncleared
from ottla.wire.errors import ProtocolError
from ottla.wire.parts import Buffer

_SIZE = struct.Struct(">i")
# Far above what brokers send, and below what the first bytes of other protocols (TLS, HTTP) look like as a size.
LARGEST_FRAME_BYTES = 256 << 20
_LEAST_BYTES = 64 * 1024
_LARGE_FRAME_BYTES = _LEAST_BYTES // 2
_LARGEST_GUESS_BYTES = 16 << 20
_MOST_GIVEN = 3  # one that is received, one that is read, and one whose records are sent on


class FrameReceiver:
    """Small frames come many at a time and are copied out; a large one is received where it will stay.

    After a large frame the next is taken to be as large, so that one call to the socket can bring all of it: each
    call costs a turn with the threads that use what was received before. While large frames follow one another, memory
    that nobody looks at any more is used again: to touch fresh memory costs as much as to receive into it.
    """

    def __init__(self, largest_frame_bytes: int = LARGEST_FRAME_BYTES) -> None:
        self._largest_frame_bytes = largest_frame_bytes
        self._memory = uncleared(_LEAST_BYTES)
        self._filled = 0
        self._given: deque[bytearray] = deque(maxlen=_MOST_GIVEN)
        """What frames lie in that were handed out."""

    def buffer(self) -> memoryview:
        """Where the next bytes go. Good until `received` is called; never empty."""
        return memoryview(self._memory)[self._filled :]

    def received(self, count: int) -> list[Buffer]:
        """The frames, without their sizes, that `count` more bytes complete; ProtocolError for an impossible size."""
        self._filled += count
        frames: list[Buffer] = []
        view = memoryview(self._memory)
        position = 0
        largest_bytes = 0  # of those that stay in the memory
        needed_bytes = _SIZE.size
        while self._filled - position >= _SIZE.size:
            (size_bytes,) = _SIZE.unpack_from(view, position)
            if not 0 <= size_bytes <= self._largest_frame_bytes:
                raise ProtocolError(f"a frame of {size_bytes} bytes")
            needed_bytes = _SIZE.size + size_bytes
            if needed_bytes > self._filled - position:
                break
            frame = view[position + _SIZE.size : position + needed_bytes]
            if size_bytes > _LARGE_FRAME_BYTES:
                largest_bytes = max(largest_bytes, needed_bytes)
                frames.append(frame)
            else:
                frames.append(bytes(frame))
            position += needed_bytes
            needed_bytes = _SIZE.size
        self._go_on(view[position : self._filled], needed_bytes, largest_bytes)
        return frames

    def _go_on(self, rest: memoryview, needed_bytes: int, largest_bytes: int) -> None:
        """Behind the bytes of the next frame that are here: in the same memory, if nothing else stays there."""
        if largest_bytes or needed_bytes > len(self._memory):
            guess_bytes = min(largest_bytes, _LARGEST_GUESS_BYTES)
            memory = self._take(max(guess_bytes, needed_bytes, _LEAST_BYTES))
            memory[: len(rest)] = rest
            if largest_bytes and len(self._memory) <= _LARGEST_GUESS_BYTES:
                self._given.append(self._memory)
            self._memory = memory
        elif len(rest) != self._filled:
            self._memory[: len(rest)] = bytes(rest)
            self._given.clear()  # small ones follow: it is not needed soon
        self._filled = len(rest)

    def _take(self, size_bytes: int) -> bytearray:
        """Memory of at least so many bytes, which may have been used before."""
        for memory in list(self._given):
            if len(memory) <= size_bytes:
                continue
            try:
                memory.pop()  # which is refused while anybody looks at it
            except BufferError:
                continue
            self._given.remove(memory)
            return memory
        return uncleared(size_bytes + size_bytes // 16)  # room for those that are a little larger
