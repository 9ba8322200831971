"""A file system in memory that forgets what was not synced, and fails, tears or stops at any operation.

`SimulatedFiles` is the twin of `ottla.log.files.DiskFiles`: give it to whatever asks for `Files`.

    files = SimulatedFiles()
    log = open_log(files, "topic-0", TopicConfig(), now_ms=0)
    ...
    files.crash(SYNCED_ONLY)  # the power goes off and comes back
    log = open_log(files, "topic-0", TopicConfig(), now_ms=1)

It models a disk behind a page cache. What is written, cut, made, renamed or removed is seen by everyone at once,
and is volatile until it is synced: the contents of a file by `sync`, the names in a folder by `sync_folder` (a
file's sync says nothing about its name, nor the other way round).

Three things end a life. `kill` ends the process: all open files are dead, the page cache stays, and what was
volatile still is. `crash` takes the power away: a `Loss` (loss.py) says what of the volatile changes had reached
the disk. Of the writes to a file any may have arrived, whole, in part or as a hole of zeros; of the changes of
names in a folder the first few, in their order, as with a journal. And a fault may stop the machine at one
operation, after which everything raises `Crashed` until `kill` or `crash` brings it back.

Every operation that changes something is counted and traced, the steps within `replace` and `write_at` too. So a
test runs its work once to learn the number of operations, and then once for each with a fault there:

    files.arm(17, Effect.TEAR, errno.EIO)
"""

from __future__ import annotations

import contextlib
import enum
import errno
import functools
import os
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ottla.log.files import NO_FILE, Buffer, failure_of
from ottla.testing.disk import Contents, Folder, NameChange, Truncation, Write
from ottla.testing.loss import Loss

TRACED_OPERATIONS = 10_000


class Crashed(Exception):
    """The machine is down, or was since this file was opened. No OSError: the dead handle no errors."""


# What an operation does instead of what it was asked to


class Effect(enum.Enum):
    """What happens at an operation with a fault.

    A part of a write is its first half. A truncation and a change of names cannot be done in part: they are done,
    and the caller is told that they failed. Of a sync, the older half of the changes arrives.
    """

    FAIL = "fails"
    TEAR = "fails, done in part"
    CRASH = "the machine stops"
    TEAR_AND_CRASH = "the machine stops, done in part"


class DiskFault(NamedTuple):
    effect: Effect
    error_number: int


class Operation(NamedTuple):
    """One operation that changes something, as the trace keeps it."""

    number: int  # from 1 on
    kind: str
    path: str
    detail: str
    fault: DiskFault | None

    def __str__(self) -> str:
        text = f"{self.number} {self.kind} {self.path}"
        if self.detail:
            text += f", {self.detail}"
        return f"{text}: {self.fault.effect.value}" if self.fault else text


class SimulatedFile:
    """An open file. Dead after the next `kill` or `crash`."""

    __slots__ = ("_contents", "_files", "_life", "_path", "size_bytes")

    def __init__(self, files: SimulatedFiles, path: str, contents: Contents) -> None:
        self._files = files
        self._life = files.lives
        self._path = path
        self._contents = contents
        self.size_bytes = len(contents.now)

    def append(self, data: Buffer) -> None:
        contents = self._living()
        try:
            self._files.write_contents(contents, self._path, self.size_bytes, data)
        except OSError:
            with contextlib.suppress(OSError):
                self._files.truncate_contents(contents, self._path, self.size_bytes)
            raise
        self.size_bytes += len(data)

    def read(self, position: int, size_bytes: int) -> bytes:
        return bytes(self._living().now[position : position + size_bytes])

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_over(self, position: int, data: Buffer) -> None:
        self._files.write_contents(self._living(), self._path, position, data)

    def truncate(self, size_bytes: int) -> None:
        self._files.truncate_contents(self._living(), self._path, size_bytes)
        self.size_bytes = size_bytes

    def sync(self) -> None:
        self._files.sync_contents(self._living(), self._path)

    def fileno(self) -> int:
        raise _error(errno.ENOTSUP, self._path)  # nothing that the kernel could send from

    def _living(self) -> Contents:
        if self._life != self._files.lives:
            raise Crashed(f"{self._path} was opened before the end of an earlier life")
        return self._contents


class SimulatedLock:
    """A lock on a folder, which the end of the process also lets go of."""

    def __init__(self, held: dict[str, SimulatedLock], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        if self._held.get(self._path) is self:
            del self._held[self._path]


class SimulatedFiles:
    """The files of one machine.

    `capacity_bytes` is how much the disk holds, None without a limit; it may be changed at any time. When a sync
    fails, the system takes the pages it could not write for written, as Linux does: they are read as before, and
    gone with the next loss of power. With `keeps_failed_pages` they stay volatile and a later sync may save them.
    """

    def __init__(self, *, capacity_bytes: int | None = None, keeps_failed_pages: bool = False) -> None:
        self.capacity_bytes = capacity_bytes
        self.keeps_failed_pages = keeps_failed_pages
        self.now_ms = 0  # the clock that `modified_ms` tells from
        self.operation_count = 0
        self.trace: deque[Operation] = deque(maxlen=TRACED_OPERATIONS)
        self.lives = 1
        self.is_down = False
        self._faults: dict[int, DiskFault] = {}
        self._locks: dict[str, SimulatedLock] = {}
        self._root = Folder()

    # Faults

    def arm(self, number: int, effect: Effect, error_number: int = errno.EIO) -> None:
        """Let the operation with that number, counted from the first of all, meet a fault."""
        self._faults[number] = DiskFault(effect, error_number)

    @property
    def has_faults(self) -> bool:
        """Whether one is armed that was not met yet."""
        return any(number > self.operation_count for number in self._faults)

    def disarm(self) -> None:
        self._faults.clear()

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Let a bit of a file decay, in the page cache and on the disk."""
        contents = self._contents(path)
        flipped = bytes([contents.now[position] ^ 1 << bit])
        contents.now[position : position + 1] = flipped
        if position < len(contents.durable):
            contents.durable[position] ^= 1 << bit
        if contents.volatile:
            contents.volatile.append(Write(position, flipped))

    def kill(self) -> None:
        """End the process and start the next: open files are dead, nothing is lost, nothing is synced."""
        self.lives += 1
        self.is_down = False
        self._locks.clear()
        self.disarm()

    def crash(self, loss: Loss) -> None:
        """Take the power away and bring it back."""
        self.kill()
        self._root.lose(loss)

    @property
    def used_bytes(self) -> int:
        return _used_bytes(self._root)

    # Files

    def open(self, path: str) -> SimulatedFile:
        return SimulatedFile(self, path, self._made(path))

    def exists(self, path: str) -> bool:
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def is_folder(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._node(path), Folder)

    def modified_ms(self, path: str) -> int:
        return self._contents(path).modified_ms

    def read_all(self, path: str) -> bytes:
        return bytes(self._contents(path).now)

    def read_at(self, path: str, position: int, size_bytes: int) -> bytes:
        return bytes(self._contents(path).now[position : position + size_bytes])

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        contents = self._made(path)
        self.write_contents(contents, path, position, data)
        self.truncate_contents(contents, path, position + len(data))

    def replace(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        contents = self._made(temporary)
        if contents.now:
            self.truncate_contents(contents, temporary, 0)
        self.write_contents(contents, temporary, 0, data)
        if durable:
            self.sync_contents(contents, temporary)
        self.rename(temporary, path)
        if durable:
            self.sync_folder(path.rpartition("/")[0])

    def sync_path(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.sync_contents(self._contents(path), path)

    def write_contents(self, contents: Contents, path: str, position: int, data: Buffer) -> None:
        if not data:
            return
        data = bytes(data)
        fitting = self._fitting(contents, position, len(data))

        def write(size_bytes: int) -> None:
            contents.modified_ms = self.now_ms
            contents.change(Write(position, data[:size_bytes]))

        def write_all() -> None:
            write(fitting)
            if fitting < len(data):
                raise _error(errno.ENOSPC, path)

        detail = f"{len(data)} bytes at {position}"
        self._do("write", path, detail, write_all, lambda: write(min(fitting, len(data) // 2)))

    def truncate_contents(self, contents: Contents, path: str, size_bytes: int) -> None:
        def truncate() -> None:
            contents.modified_ms = self.now_ms
            contents.change(Truncation(size_bytes))

        self._do("truncate", path, f"to {size_bytes} bytes", truncate, truncate)

    def sync_contents(self, contents: Contents, path: str) -> None:
        count = len(contents.volatile)
        try:
            self._do("sync", path, "", lambda: contents.settle(count), lambda: contents.settle(count // 2))
        except OSError:
            if not self.keeps_failed_pages:
                contents.volatile.clear()
            raise

    def _fitting(self, contents: Contents, position: int, size_bytes: int) -> int:
        """How much of a write the disk has room for."""
        if self.capacity_bytes is None:
            return size_bytes
        room = self.capacity_bytes - self.used_bytes
        growth = max(0, position + size_bytes - len(contents.now))
        return size_bytes - min(size_bytes, max(0, growth - max(0, room)))

    # Names

    def spread_folders(self, path: str) -> None:
        """There is one place for all."""

    def make_folder(self, path: str) -> None:
        folder, at = self._top(), ""
        for name in _names(path):
            at = f"{at}/{name}"
            if name not in folder.now:
                self._change_names("make folder", at, "", folder, {name: Folder()})
            node = folder.now[name]
            if not isinstance(node, Folder):
                raise _error(errno.EEXIST, at)
            folder = node

    def sizes(self, folder: str) -> dict[str, int]:
        names = self._folder(folder).now
        return {name: len(node.now) if isinstance(node, Contents) else NO_FILE for name, node in names.items()}

    def folders(self, folder: str) -> list[str]:
        return [name for name, node in self._folder(folder).now.items() if not isinstance(node, Contents)]

    def rename(self, old: str, new: str) -> None:
        """Within a folder: nothing here needs more."""
        node = self._node(old)
        folder, new_name = self._parent(new)
        if folder is not self._parent(old)[0]:
            raise _error(errno.EXDEV, new)
        change: NameChange = {_names(old)[-1]: None, new_name: node}
        self._change_names("rename", old, f"to {new_name}", folder, change)

    def remove(self, path: str) -> None:
        if self.exists(path):
            folder, name = self._parent(path)
            self._change_names("remove", path, "", folder, {name: None})

    def remove_tree(self, path: str) -> None:
        if not self.exists(path):
            return
        for name in list(self._folder(path).now):
            inner = f"{path}/{name}"
            (self.remove if isinstance(self._node(inner), Contents) else self.remove_tree)(inner)
        folder, name = self._parent(path)
        self._change_names("remove folder", path, "", folder, {name: None})

    def sync_folder(self, path: str) -> None:
        folder = self._folder(path)
        count = len(folder.volatile)
        self._do("sync folder", path, "", lambda: folder.settle(count), lambda: folder.settle(count // 2))

    def run_together(self, jobs: Sequence[Callable[[], None]]) -> dict[int, OSError]:
        """One after the other: so their order is the same in every run."""
        failures = {number: failure_of(job) for number, job in enumerate(jobs)}
        return {number: failure for number, failure in failures.items() if failure is not None}

    def lock(self, path: str) -> SimulatedLock:
        self._made(path)
        if path in self._locks:
            raise _error(errno.EWOULDBLOCK, path)
        lock = self._locks[path] = SimulatedLock(self._locks, path)
        return lock

    def _change_names(self, kind: str, path: str, detail: str, folder: Folder, change: NameChange) -> None:
        self._do(kind, path, detail, lambda: folder.change(change), lambda: folder.change(change))

    def _top(self) -> Folder:
        if self.is_down:
            raise Crashed("the machine is down")
        return self._root

    def _node(self, path: str) -> Contents | Folder:
        node: Contents | Folder = self._top()
        for name in _names(path):
            if not isinstance(node, Folder):
                raise _error(errno.ENOTDIR, path)
            if name not in node.now:
                raise _error(errno.ENOENT, path)
            node = node.now[name]
        return node

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        if not isinstance(node, Folder):
            raise _error(errno.ENOTDIR, path)
        return node

    def _contents(self, path: str) -> Contents:
        node = self._node(path)
        if not isinstance(node, Contents):
            raise _error(errno.EISDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        *folders, name = _names(path)
        return self._folder("/".join(folders)), name

    def _made(self, path: str) -> Contents:
        """The file at `path`, made if it is missing."""
        folder, name = self._parent(path)
        if name not in folder.now:
            self._change_names("create", path, "", folder, {name: Contents()})
        return self._contents(path)

    # Every change goes through here

    def _do(self, kind: str, path: str, detail: str, whole: Callable[[], None], part: Callable[[], None]) -> None:
        self._top()
        self.operation_count += 1
        fault = self._faults.get(self.operation_count)
        self.trace.append(Operation(self.operation_count, kind, path, detail, fault))
        if fault is None:
            whole()
            return
        if fault.effect in (Effect.TEAR, Effect.TEAR_AND_CRASH):
            part()
        if fault.effect in (Effect.CRASH, Effect.TEAR_AND_CRASH):
            self.is_down = True
            raise Crashed(str(self.trace[-1]))
        raise _error(fault.error_number, path)


@functools.lru_cache
def _names(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name not in ("", "."))


def _used_bytes(folder: Folder) -> int:
    return sum(len(n.now) if isinstance(n, Contents) else _used_bytes(n) for n in folder.now.values())


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
