"""Real files, some folders of which lie on a disk that fails when a test says so."""

from __future__ import annotations

import errno
import os

from ottla.log.files import Buffer, DiskFile, DiskFiles, FolderLock


class FailingFile(DiskFile):
    __slots__ = ("_disk", "_path")

    def __init__(self, path: str, disk: FailingDisk) -> None:
        super().__init__(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
        self._path = path
        self._disk = disk

    def append(self, data: Buffer) -> None:
        self._disk.check(self._path)
        super().append(data)

    def sync(self) -> None:
        self._disk.check(self._path)
        super().sync()


class FailingDisk(DiskFiles):
    def __init__(self) -> None:
        self.failed: list[str] = []  # folders

    def check(self, path: str) -> None:
        if any(path.startswith(f"{folder}/") or path == folder for folder in self.failed):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def open(self, path: str) -> DiskFile:
        self.check(path)
        return FailingFile(path, self)

    def make_folder(self, path: str) -> None:
        self.check(path)
        super().make_folder(path)

    def folders(self, folder: str) -> list[str]:
        self.check(folder)
        return super().folders(folder)

    def replace(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        self.check(path)
        super().replace(path, data, durable=durable)

    def rename(self, old: str, new: str) -> None:
        self.check(old)
        super().rename(old, new)

    def lock(self, path: str) -> FolderLock:
        self.check(path)
        return super().lock(path)
