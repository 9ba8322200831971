"""No request on topics, settings, quotas or producer ids touches the store or waits for a disk on the loop's thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.controller.sqlite_nodes import SqliteNodes
from ottla.testing import LocalBroker
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.schema import Request
from tests.conformance import group_requests as groups
from tests.conformance import requests
from tests.conformance import transaction_requests as transactions
from tests.conformance.connection import Connection

LOOP, STORE = "ottla-broker", "ottla-store"
TOPIC, BROKER, GROUP = 2, 4, 32
WAIT_S = 60.0


def delete_records(topic: str) -> Request:
    partitions = [DeleteRecordsPartition(partition_index=0, offset=-1)]
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=partitions)], timeout_ms=1000)


CHANGES: dict[str, Callable[[], Request]] = {
    "create": lambda: requests.create_topics(requests.creatable("new", partitions=10)),
    "expand": lambda: requests.create_partitions(("new", 20, None)),
    "configure a topic": lambda: requests.change_configs(TOPIC, "new", [("retention.ms", 0, "7")]),
    "configure a broker": lambda: requests.change_configs(BROKER, "1", [("max.connections", 0, "700")]),
    "configure a group": lambda: requests.change_configs(GROUP, "g", [("consumer.session.timeout.ms", 0, "50000")]),
    "limit": lambda: requests.alter_quotas([("client-id", "c")], ("producer_byte_rate", 7e9)),
    "create by asking": lambda: requests.metadata("asked", create=True),
    "find a coordinator": lambda: groups.find_coordinators("g"),
    "begin a producer": lambda: transactions.init(None),
    "begin a transactional producer": lambda: transactions.init("t"),
    "delete records": lambda: delete_records("old"),
    "delete": lambda: requests.delete_topics("old", "new"),
}


class Watched:
    """Which thread did what, since the broker serves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: dict[str, set[str]] = {}
        for name in ("get", "children", "tree", "commit", "look"):
            self._watch(monkeypatch, SqliteNodes, name, "store")
        for name in ("fsync", "fdatasync"):
            self._watch(monkeypatch, os, name, "sync")

    def _watch(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, kind: str) -> None:
        original = getattr(owner, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            self.threads.setdefault(kind, set()).add(threading.current_thread().name)
            return original(*arguments, **options)

        monkeypatch.setattr(owner, name, noted)


def test_the_loop_never_waits_for_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = LocalBroker(str(tmp_path), durability="fsync")
    connection = Connection((broker.host, broker.port))
    try:
        broker.topic("old", partitions=3)
        broker.put("old", b"value")
        watched = Watched(monkeypatch)
        for number, change in enumerate(CHANGES.values()):
            request = change()
            connection.send(encode_request(number, "client", request, request.api.highest))
            frame = connection.receive(WAIT_S)
            assert isinstance(frame, bytes)
            decode_response(frame, request.api, request.api.highest)
        assert watched.threads["store"] == {STORE}
        assert LOOP not in watched.threads["sync"]
    finally:
        connection.close()
        broker.stop()
