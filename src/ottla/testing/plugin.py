"""The pytest plugin: `def test_x(ottla)` gets a running broker.

A test says what it needs of it with a marker:

    @pytest.mark.ottla(topics={"orders": 3}, settings={"auto.create.topics.enable": "false"})
    def test_x(ottla): ...

`ottla_cluster` is three of them that replicate, or as many as `@pytest.mark.ottla_cluster(brokers=5)` says.

`ottla` is a new broker for each test. `ottla_module` and `ottla_session` are shared by the tests of a file and of the
whole run, for suites that would rather share than start.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ottla.testing import LocalBroker, LocalCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "ottla(topics={name: partitions}, settings={name: value}, durability='page-cache'): "
        "what the broker of the fixture `ottla` is like",
    )
    config.addinivalue_line(
        "markers",
        "ottla_cluster(brokers=3, topics={name: partitions}, settings={name: value}): "
        "what the cluster of the fixture `ottla_cluster` is like",
    )


@pytest.fixture
def ottla(request: pytest.FixtureRequest) -> Iterator[LocalBroker]:
    """A running broker of this test's own, whose data goes with it. Markers of file, class and function add up."""
    yield from _running(**_wanted(request, "ottla"))


@pytest.fixture
def ottla_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Running brokers of this test's own that make a cluster."""
    from ottla.testing import cluster

    wanted = _wanted(request, "ottla_cluster")
    topics = wanted.pop("topics", {})
    with cluster(**wanted) as running:
        for name, partitions in topics.items():
            running.topic(name, partitions=partitions)
        yield running


@pytest.fixture(scope="module")
def ottla_module() -> Iterator[LocalBroker]:
    """A running broker that the tests of one file share."""
    yield from _running()


@pytest.fixture(scope="session")
def ottla_session() -> Iterator[LocalBroker]:
    """A running broker that all tests share."""
    yield from _running()


def _wanted(request: pytest.FixtureRequest, marker_name: str) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    for marker in reversed(list(request.node.iter_markers(marker_name))):  # the nearest has the last word
        for name, value in marker.kwargs.items():
            wanted[name] = wanted.get(name, {}) | value if isinstance(value, dict) else value
    return wanted


def _running(
    topics: dict[str, int] | None = None, settings: dict[str, object] | None = None, durability: str = "page-cache"
) -> Iterator[LocalBroker]:
    from ottla.testing import broker

    with broker(settings=settings, durability=durability) as running:
        for name, partitions in (topics or {}).items():
            running.topic(name, partitions=partitions)
        yield running
