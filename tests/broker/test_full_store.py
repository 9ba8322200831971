"""A store that cannot be written refuses each change with an error of the protocol, and what runs stays as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.handlers import (
    alter_client_quotas,
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    incremental_alter_configs,
)
from ottla.controller.sqlite_nodes import SqliteNodes
from ottla.controller.store import StoreUnusable
from ottla.wire.errors import ErrorCode
from ottla.wire.schema import Request
from tests.broker.opened_broker import OpenBroker, topic
from tests.conformance import requests

TOPIC, BROKER, GROUP = 2, 4, 32
CHANGES: dict[str, tuple[Any, Request, Callable[[Any], int]]] = {
    "create topics": (
        create_topics,
        requests.create_topics(requests.creatable("new")),
        lambda answer: answer.topics[0].error_code,
    ),
    "delete topics": (
        delete_topics,
        requests.delete_topics("t"),
        lambda answer: answer.responses[0].error_code,
    ),
    "create partitions": (
        create_partitions,
        requests.create_partitions(("t", 5, None)),
        lambda answer: answer.results[0].error_code,
    ),
    "configure a topic": (
        incremental_alter_configs,
        requests.change_configs(TOPIC, "t", [("retention.ms", 0, "7")]),
        lambda answer: answer.responses[0].error_code,
    ),
    "configure a broker": (
        incremental_alter_configs,
        requests.change_configs(BROKER, "1", [("max.connections", 0, "7")]),
        lambda answer: answer.responses[0].error_code,
    ),
    "configure a group": (
        incremental_alter_configs,
        requests.change_configs(GROUP, "g", [("consumer.session.timeout.ms", 0, "50000")]),
        lambda answer: answer.responses[0].error_code,
    ),
    "replace the configuration of a topic": (
        alter_configs,
        requests.alter_configs(TOPIC, "t", [("retention.ms", "7")]),
        lambda answer: answer.responses[0].error_code,
    ),
    "set a quota": (
        alter_client_quotas,
        requests.alter_quotas([("client-id", "c")], ("producer_byte_rate", 7.0)),
        lambda answer: answer.entries[0].error_code,
    ),
}


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path)
    opened.create(topic("t"))
    yield opened
    opened.stop()


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_cannot_be_kept_is_refused(
    opened: OpenBroker, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    def fail(*_arguments: object, **_options: object) -> None:
        raise StoreUnusable("the disk is full")

    module, request, code_of = CHANGES[change]
    with monkeypatch.context() as patch:
        patch.setattr(SqliteNodes, "commit", fail)
        assert code_of(opened.ask(module, request)) == ErrorCode.KAFKA_STORAGE_ERROR
    broker = opened.broker
    assert list(broker.topics.by_name) == list(broker.controller.cluster.topics) == ["t"]
    assert set(broker.logs.logs) == {("t", 0)}
    assert broker.topics.by_name["t"].overrides == {}
    assert broker.settings.of_broker == {}
    assert not broker.quotas.are_set
    assert code_of(opened.ask(module, request)) == 0  # when there is room again
