"""The file layer: all that the log asks of a file system, in one place.

`DiskFiles` is the real one. `ottla.testing.files.SimulatedFiles` is its twin in memory, which forgets what was
not synced and fails or tears any operation on demand. Nothing in this room touches `os` but this file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

SYNCS_AT_ONCE = 32
NO_FILE = -1
"""The size of what is no file: a folder, a device, a link that leads nowhere."""

# Nothing here waits for whoever is at the other end of a pipe that lies where a file should be.
_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_READ = os.O_RDONLY | _FLAGS
_APPEND = os.O_RDWR | os.O_CREAT | _FLAGS
_WRITE = os.O_WRONLY | os.O_CREAT | _FLAGS

# Of linux/fs.h: what `lsattr` and `chattr` ask for, and their T.
GET_INODE_FLAGS = 0x80086601
SET_INODE_FLAGS = 0x40086602
TOP_OF_HIERARCHIES = 0x00020000


class File(Protocol):
    """One open file, closed when nobody holds it: a reply under way may outlive the segment it reads from.

    `size_bytes` is what was written through it and taken by the system.
    """

    size_bytes: int

    def append(self, data: Buffer) -> None:
        """Write all of `data` at the end. When it raises, the file counts as unchanged."""

    def read(self, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` from `position`; fewer at the end of the file."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill `buffer` from `position`; how many bytes there were."""

    def write_over(self, position: int, data: Buffer) -> None:
        """Write where there are bytes already."""

    def truncate(self, size_bytes: int) -> None: ...

    def sync(self) -> None:
        """Return when all that was written is on the disk. Safe to call on another thread."""

    def fileno(self) -> int: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """A file system, as much of one as the log needs. Paths are absolute or relative strings."""

    def open(self, path: str) -> File:
        """Open for reading and appending; made if it is missing."""

    def make_folder(self, path: str) -> None: ...

    def spread_folders(self, path: str) -> None:
        """Ask for the folders in this one to be kept apart from each other, where the file system knows how."""

    def sizes(self, folder: str) -> dict[str, int]:
        """What is in a folder, by name, with the size of each file."""

    def folders(self, folder: str) -> list[str]:
        """The names of the folders in a folder."""

    def exists(self, path: str) -> bool: ...

    def is_folder(self, path: str) -> bool: ...

    def modified_ms(self, path: str) -> int: ...

    def read_all(self, path: str) -> bytes:
        """The contents of a file; OSError with its name if it is none."""

    def read_at(self, path: str, position: int, size_bytes: int) -> bytes:
        """Up to `size_bytes` of a file that is not open, from `position`; fewer at its end."""

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        """Cut or fill a small file to end with `data` at `position`; made if missing; not synced."""

    def replace(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        """Give a file new contents, all or nothing, also when the power goes off in between."""

    def rename(self, old: str, new: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is fine."""

    def remove_tree(self, path: str) -> None:
        """Remove a folder with all that is in it; what is not there, or goes meanwhile, is fine."""

    def sync_path(self, path: str) -> None:
        """Sync a file that is not open; one that is not there is fine."""

    def sync_folder(self, path: str) -> None:
        """Return when the names in a folder (made, renamed, removed) are on the disk."""

    def run_together(self, jobs: Sequence[Callable[[], None]]) -> dict[int, OSError]:
        """Run jobs that sync, in any order and several at a time; the errors, by the number of the job."""

    def lock(self, path: str) -> Lock:
        """Own a data folder by a lock file in it; OSError when another process does."""


class HasFile(Protocol):
    """What opens its file where it is not open."""

    @property
    def file(self) -> File: ...


class FileRange(NamedTuple):
    """Bytes of a file, to be sent without reading them. Nothing is kept open for what waits to be sent."""

    owner: HasFile
    position: int
    size_bytes: int

    @property
    def file(self) -> File:
        return self.owner.file

    def read(self) -> bytes:
        return self.file.read(self.position, self.size_bytes)


class DiskFile:
    """A file on disk. Writes go to a known position, so what a failed one left behind is overwritten next."""

    __slots__ = ("_descriptor", "size_bytes")

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.size_bytes = os.fstat(descriptor).st_size

    def append(self, data: Buffer) -> None:
        size = len(data)
        try:
            written = os.pwrite(self._descriptor, data, self.size_bytes)
            if written != size:
                _write_all(self._descriptor, memoryview(data)[written:], self.size_bytes + written)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.size_bytes)
            raise
        self.size_bytes += size

    def read(self, position: int, size_bytes: int) -> bytes:
        return os.pread(self._descriptor, size_bytes, position)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return os.preadv(self._descriptor, [buffer], position)

    def write_over(self, position: int, data: Buffer) -> None:
        _write_all(self._descriptor, data, position)

    def truncate(self, size_bytes: int) -> None:
        os.ftruncate(self._descriptor, size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def fileno(self) -> int:
        return self._descriptor

    def __del__(self) -> None:
        os.close(self._descriptor)


class DiskFiles:
    def open(self, path: str) -> DiskFile:
        return DiskFile(os.open(path, _APPEND, 0o644))

    def make_folder(self, path: str) -> None:
        try:
            os.mkdir(path)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(path, exist_ok=True)

    def spread_folders(self, path: str) -> None:
        # ext4 looks for a free inode next to the folder's neighbours, and passes over those that were freed in the last
        # minutes, one by one: where many files were removed, making one takes half a millisecond instead of 20 us.
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                flags = int.from_bytes(fcntl.ioctl(descriptor, GET_INODE_FLAGS, bytes(4)), sys.byteorder)
                flags |= TOP_OF_HIERARCHIES
                fcntl.ioctl(descriptor, SET_INODE_FLAGS, flags.to_bytes(4, sys.byteorder))
            finally:
                os.close(descriptor)

    def sizes(self, folder: str) -> dict[str, int]:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size if entry.is_file() else NO_FILE for entry in entries}

    def folders(self, folder: str) -> list[str]:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir()]

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_folder(self, path: str) -> bool:
        return os.path.isdir(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def read_all(self, path: str) -> bytes:
        descriptor = os.open(path, _READ)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise no_file(path)
            parts = []
            while part := os.read(descriptor, 1 << 20):
                parts.append(part)
        finally:
            os.close(descriptor)
        return b"".join(parts)

    def read_at(self, path: str, position: int, size_bytes: int) -> bytes:
        descriptor = os.open(path, _READ)
        try:
            return os.pread(descriptor, size_bytes, position)
        finally:
            os.close(descriptor)

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        descriptor = os.open(path, _WRITE, 0o644)
        try:
            _write_all(descriptor, data, position)
            end = position + len(data)
            if os.fstat(descriptor).st_size != end:
                os.ftruncate(descriptor, end)
        finally:
            os.close(descriptor)

    def replace(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        descriptor = os.open(temporary, _WRITE | os.O_TRUNC, 0o644)
        try:
            _write_all(descriptor, data, 0)
            if durable:
                os.fdatasync(descriptor)
        except OSError:
            with contextlib.suppress(OSError):  # a full disk needs the room
                os.ftruncate(descriptor, 0)
            raise
        finally:
            os.close(descriptor)
        os.replace(temporary, path)
        if durable:
            self.sync_folder(os.path.dirname(path))

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            with os.scandir(path) as entries:
                names = {entry.path: entry.is_dir(follow_symlinks=False) for entry in entries}
            for name, is_folder in names.items():
                (self.remove_tree if is_folder else self.remove)(name)
            (os.unlink if os.path.islink(path) else os.rmdir)(path)

    def sync_path(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDWR | _FLAGS)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def sync_folder(self, path: str) -> None:
        descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def run_together(self, jobs: Sequence[Callable[[], None]]) -> dict[int, OSError]:
        errors: dict[int, OSError] = {}
        waiting = list(enumerate(jobs))

        def work() -> None:
            with contextlib.suppress(IndexError):  # none are left
                while True:
                    number, job = waiting.pop()
                    try:
                        failure = failure_of(job)
                    except Exception as mistake:  # of which nobody would hear on another thread
                        failure = OSError(repr(mistake))
                    if failure is not None:
                        errors[number] = failure

        threads: list[threading.Thread] = []
        with contextlib.suppress(RuntimeError):  # the system has no more threads: then there are fewer
            while len(threads) < min(len(jobs), SYNCS_AT_ONCE) - 1:
                thread = threading.Thread(target=work)
                thread.start()
                threads.append(thread)
        work()
        for thread in threads:
            thread.join()
        return errors

    def lock(self, path: str) -> FolderLock:
        return FolderLock(path)


def _write_all(descriptor: int, data: Buffer, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, position)
        if written == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        view = view[written:]
        position += written


class FolderLock:
    """Held while a process owns a data folder; the kernel lets go of it when the process ends."""

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, _APPEND, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            raise

    def release(self) -> None:
        os.close(self._descriptor)


def no_file(path: str) -> OSError:
    return OSError(errno.EINVAL, "this is no file", path)


def remove_all(files: Files, paths: Iterable[str]) -> None:
    for path in paths:
        files.remove(path)


def failure_of(job: Callable[[], None]) -> OSError | None:
    """Run a job; the error it ends with."""
    try:
        job()
    except OSError as error:
        return error
    return None
