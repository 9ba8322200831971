"""A disk of which a loss of power leaves only what was synced, for a broker in a process of its own.

The broker works in its folder as ever. Beside that, each sync copies what it synced to another folder: the contents
of a file by the file, the names in a folder by the folder. `lose_power` makes of the first what is in the second.
The store of topics is not looked at: that is SQLite's, and stays.

Run as a module it is `ottla` on such a disk: `python -m tests.faults.forgetting_disk SYNCED serve …`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from pathlib import Path

import ottla.log.files
from ottla.cli.main import main
from ottla.log.files import Buffer, DiskFile, DiskFiles

STORE = "cluster.sqlite"


class ForgettingFile(DiskFile):
    __slots__ = ("_files",)

    def __init__(self, descriptor: int, files: ForgettingFiles) -> None:
        super().__init__(descriptor)
        self._files = files

    def sync(self) -> None:
        self._files.keep_contents(self._descriptor)


class ForgettingFiles(DiskFiles):
    """`synced`: a folder for what is on the disk for good."""

    def __init__(self, synced: Path) -> None:
        self._synced = synced
        self._made = 0
        self._lock = threading.Lock()

    def open(self, path: str) -> ForgettingFile:
        is_new = not Path(path).exists()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if is_new:
            self._forget(os.fstat(descriptor).st_ino)
        return ForgettingFile(descriptor, self)

    def write_at(self, path: str, position: int, data: Buffer) -> None:
        if not Path(path).exists():
            self.open(path)
        super().write_at(path, position, data)

    def replace(self, path: str, data: Buffer, *, durable: bool = True) -> None:
        temporary = path + ".tmp"
        self.remove(temporary)
        self.write_at(temporary, 0, data)
        if durable:
            self.sync_path(temporary)
        self.rename(temporary, path)
        if durable:
            self.sync_folder(str(Path(path).parent))

    def sync_path(self, path: str) -> None:
        if Path(path).exists():
            self.open(path).sync()

    def make_folder(self, path: str) -> None:
        if not Path(path).exists():
            super().make_folder(path)
            self._forget(Path(path).stat().st_ino)

    def sync_folder(self, path: str) -> None:
        with os.scandir(path) as entries:
            names = {entry.name: (entry.stat().st_ino, entry.is_dir()) for entry in entries}
        self._write(Path(path).stat().st_ino, json.dumps(names).encode())

    def keep_contents(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        self._write(status.st_ino, os.pread(descriptor, status.st_size, 0))

    def _forget(self, number: int) -> None:
        """What is new may have the number of something that is no more."""
        (self._synced / str(number)).unlink(missing_ok=True)

    def _write(self, number: int, data: bytes) -> None:
        with self._lock:
            self._made += 1
            temporary = self._synced / f"{self._made}.tmp"
        temporary.write_bytes(data)
        temporary.rename(self._synced / str(number))


def lose_power(folder: Path, synced: Path) -> None:
    """Leave in a data folder what was synced. Nobody may be using it."""
    kept = folder.with_name(folder.name + ".kept")
    _restore(folder.stat().st_ino, kept, synced)
    for path in folder.glob(f"{STORE}*"):
        shutil.copyfile(path, kept / path.name)
    shutil.rmtree(folder)
    shutil.rmtree(synced)
    kept.rename(folder)
    # All that is left is on the disk.
    synced.mkdir()
    files = ForgettingFiles(synced)
    for parent, _, names in os.walk(folder):
        for name in names:
            files.sync_path(f"{parent}/{name}")
        files.sync_folder(parent)


def _restore(number: int, kept: Path, synced: Path) -> None:
    kept.mkdir()
    listing = synced / str(number)
    names: dict[str, tuple[int, bool]] = json.loads(listing.read_bytes()) if listing.exists() else {}
    for name, (each, is_folder) in names.items():
        if is_folder:
            _restore(each, kept / name, synced)
        elif not name.startswith(STORE):
            contents = synced / str(each)
            (kept / name).write_bytes(contents.read_bytes() if contents.exists() else b"")


if __name__ == "__main__":
    at = Path(sys.argv[1])
    at.mkdir(exist_ok=True)
    ottla.log.files.DiskFiles = lambda: ForgettingFiles(at)  # type: ignore[assignment,misc]
    sys.exit(main(sys.argv[2:]))
