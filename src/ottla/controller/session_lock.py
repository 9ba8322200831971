"""The life of a session in a file: a lock that the kernel drops with the process, and a pulse for one that only stops.

The pulse is a time of the clock that all processes of the machine share and that never goes back. A session without a
timeout has none: its process may be stopped for as long as somebody likes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import time

_PULSE = struct.Struct(">qq")  # the last sign of life and the timeout, in nanoseconds


class SessionLock:
    def __init__(self, path: str, timeout_seconds: float | None) -> None:
        """Take the lock, in a file that nobody else has."""
        self._path = path
        self._timeout_ns = None if timeout_seconds is None else int(timeout_seconds * 1e9)
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.beat()
        except BaseException:
            os.close(self._descriptor)
            raise

    def beat(self) -> None:
        """A sign of life, before the timeout is over."""
        if self._timeout_ns is not None:
            # On a full disk, too: the file has these bytes from the beginning.
            os.pwrite(self._descriptor, _PULSE.pack(time.monotonic_ns(), self._timeout_ns), 0)

    def release(self) -> None:
        remove_lock(self._path)
        os.close(self._descriptor)

    def drop(self) -> None:
        """As the kernel does when the process ends."""
        os.close(self._descriptor)


def is_dead(path: str) -> bool:
    """Whether the process with this lock has ended, or given no sign of life for too long."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pulse = os.pread(descriptor, _PULSE.size, 0)
        if len(pulse) < _PULSE.size:
            return False
        beaten_ns, timeout_ns = _PULSE.unpack(pulse)
        return bool(time.monotonic_ns() > beaten_ns + timeout_ns)
    finally:
        os.close(descriptor)
    return True


def remove_lock(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
