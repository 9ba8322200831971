"""The first words with a cluster are lost, as any others may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.client import Admin, BrokerUnreachable, ClientOptions, ConnectionLost, Consumer, Producer, Reader
from ottla.testing import LocalBroker

OPENED: dict[str, Callable[..., Any]] = {
    "admin": Admin,
    "consumer": lambda address, **options: Consumer(address, "t", group="g", **options),
    "producer": Producer,
    "reader": lambda address, **options: Reader(address, "t", **options),
    "transactional producer": lambda address, **options: Producer(address, transactional_id="x", **options),
}
clients = pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED.keys())


@clients
@pytest.mark.parametrize("api", ["ApiVersions", "Metadata"])
@pytest.mark.ottla(topics={"t": 1})
def test_who_is_cut_off_at_the_beginning_tries_again(ottla: LocalBroker, opened: Callable[..., Any], api: str) -> None:
    fault = ottla.faults.cut(api, times=2)
    with opened(ottla.bootstrap):
        assert fault.count == 2


@clients
@pytest.mark.ottla(topics={"t": 1})
def test_but_not_for_ever(ottla: LocalBroker, opened: Callable[..., Any]) -> None:
    ottla.faults.cut("Metadata", times=1_000)
    with (
        pytest.raises(ConnectionLost),
        opened(ottla.bootstrap, options=ClientOptions(retry_timeout_ms=100)),
    ):
        pass


@clients
def test_that_nobody_listens_is_told_at_once(ottla: LocalBroker, opened: Callable[..., Any]) -> None:
    with ottla.down(), pytest.raises(BrokerUnreachable), opened(ottla.bootstrap):
        pass
