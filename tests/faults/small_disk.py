"""A small disk of its own, to be filled up: a file system in memory, where the system lets us mount one."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

STEPS_BYTES = (1 << 20, 4096)


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Leave no room at all."""
        with self._filler.open("ab", buffering=0) as file:
            for step_bytes in STEPS_BYTES:
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(step_bytes))

    def clear(self) -> None:
        """Take away what filled it."""
        self._filler.unlink()

    @property
    def free_bytes(self) -> int:
        state = os.statvfs(self.folder)
        return state.f_bavail * state.f_frsize


def can_mount() -> bool:
    """Whether this process may mount file systems, in a namespace of its own or here."""
    try:
        return subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[SmallDisk]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)], check=True)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
