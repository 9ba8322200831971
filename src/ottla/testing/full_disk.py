"""A disk that a test can fill and empty at will."""

from __future__ import annotations

import errno
import os

from ottla.log.files import Buffer, DiskFile, DiskFiles


class FillableFile(DiskFile):
    __slots__ = ("_disk",)

    def __init__(self, descriptor: int, disk: FillableDisk) -> None:
        super().__init__(descriptor)
        self._disk = disk

    def append(self, data: Buffer) -> None:
        if self._disk.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().append(data)


class FillableDisk(DiskFiles):
    """The real disk, which refuses to let logs grow while it `is_full`."""

    def __init__(self) -> None:
        self.is_full = False

    def open(self, path: str) -> DiskFile:
        return FillableFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), self)
