"""A MariaDB that the tests of the run share. Where there is none, what asks for it is skipped and says so."""

import uuid
from collections.abc import Iterator

import pytest

from ottla.connect import supervisor
from tests.connect.mariadb import MariaDb, why_missing


@pytest.fixture(autouse=True)
def _told_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """What runners of this process do is told at once: tests wait for it."""
    monkeypatch.setattr(supervisor, "STATUS_MS", 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker runs all that need it, so that it is started once."""
    for item in items:
        if "mariadb" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("mariadb"))


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDb]:
    if (reason := why_missing()) is not None:
        pytest.skip(reason)
    with MariaDb(tmp_path_factory.mktemp("mariadb")) as running:
        yield running


@pytest.fixture
def database(mariadb: MariaDb) -> Iterator[str]:
    """One of the test's own."""
    name = f"shop_{uuid.uuid4().hex[:8]}"
    mariadb.run(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
    yield name
    mariadb.run(f"DROP DATABASE {name}")
