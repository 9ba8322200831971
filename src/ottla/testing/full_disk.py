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

    def sync(self) -> None:
        if self._disk.syncs:
            super().sync()


class FillableDisk(DiskFiles):
    """The real disk, which refuses to let logs grow while it `is_full`."""

    def __init__(self, *, syncs: bool = True) -> None:
        """Without `syncs` nothing waits for the disk: what a test leaves behind need not survive a loss of power."""
        self.is_full = False
        self.syncs = syncs

    def open(self, path: str) -> DiskFile:
        return FillableFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644), self)

    def replace(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        super().replace(path, data, durable=durable and self.syncs)

    def sync_path(self, path: str) -> None:
        if self.syncs:
            super().sync_path(path)

    def sync_folder(self, path: str) -> None:
        if self.syncs:
            super().sync_folder(path)
