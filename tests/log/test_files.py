"""What the disk's files do beyond their simulated twin, which tests/faults compares them with."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from ottla.log.files import DiskFiles
from ottla.log.manager import LogManager


@pytest.mark.parametrize("left", [b"", b"shorter", b"longer than what is written"])
def test_a_file_that_is_written_ends_there(tmp_path: Path, left: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(left)
    DiskFiles().write_at(str(path), 0, b"all of it")
    assert path.read_bytes() == b"all of it"
    DiskFiles().write_at(str(path), 3, b"!")
    assert path.read_bytes() == b"all!"


def test_the_partitions_of_a_data_folder_are_kept_apart(tmp_path: Path) -> None:
    before = _flags(tmp_path)
    if before is None:
        pytest.skip("this file system has no such flags")
    assert "T" not in before
    manager = LogManager(DiskFiles(), str(tmp_path / "new"))
    manager.take_folder()
    assert set(_flags(tmp_path / "new") or "") == {*before, "T"}
    manager.abandon()


def _flags(folder: Path) -> str | None:
    """What ext4 keeps of a folder, a letter each; None where it is no ext4."""
    if shutil.which("lsattr") is None:
        return None
    listed = subprocess.run(("lsattr", "-d", str(folder)), capture_output=True, text=True, timeout=60)
    return listed.stdout.split()[0].replace("-", "") if listed.returncode == 0 else None


@pytest.mark.parametrize("folder", ["/proc", "missing"])
def test_a_file_system_that_cannot_keep_them_apart(folder: str) -> None:
    DiskFiles().spread_folders(folder)
