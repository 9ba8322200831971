"""Folders that are written once and copied, or only read, by the tests."""

import shutil
from pathlib import Path

import pytest

from tests.cli.partitions import write_data_folder, write_small_partition


@pytest.fixture(scope="session")
def written_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_folder(tmp_path_factory.mktemp("written") / "data")


@pytest.fixture
def data(written_data: Path, tmp_path: Path) -> Path:
    """A data folder of the test's own."""
    return Path(shutil.copytree(written_data, tmp_path / "data"))


@pytest.fixture
def small_partition(tmp_path: Path) -> Path:
    return write_small_partition(tmp_path / "small-0")
