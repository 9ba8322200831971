"""A broker that is killed while it creates and deletes topics of very many partitions has each whole, or not at all."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import Request
from tests.conformance import requests
from tests.conformance.connection import Connection
from tests.faults.broker_process import BrokerProcess

PARTITIONS = 2000
WAIT_S = 60.0


class Client:
    def __init__(self, broker: BrokerProcess, stack: ExitStack) -> None:
        self._connection = Connection(broker.address)
        stack.callback(self._connection.close)

    def send(self, request: Request) -> None:
        self._connection.send(encode_request(1, "client", request, request.api.highest))

    def ask(self, request: Request) -> Any:
        self.send(request)
        frame = self._connection.receive(WAIT_S)
        assert isinstance(frame, bytes), frame
        return decode_response(frame, request.api, request.api.highest)[1]

    def create(self, name: str, partitions: int) -> None:
        answer = self.ask(requests.create_topics(requests.creatable(name, partitions=partitions)))
        assert answer.topics[0].error_code == 0

    def counts(self) -> dict[str, int]:
        """The partitions of each topic."""
        answer = self.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False))
        return {topic.name: len(topic.partitions) for topic in answer.topics}


@pytest.mark.parametrize("rounds", [0, 5, 40])
def test_a_topic_is_whole_or_absent_after_a_kill(tmp_path: Path, rounds: int) -> None:
    """`rounds`: exchanges of another client before the kill, each at least a round of the loop."""
    with ExitStack() as stack, BrokerProcess(tmp_path) as broker:
        creating, deleting, other = (Client(broker, stack) for _ in range(3))
        other.create("old", PARTITIONS)
        creating.send(requests.create_topics(requests.creatable("new", partitions=PARTITIONS)))
        for _ in range(rounds):
            other.ask(ApiVersionsRequest())
        deleting.send(requests.delete_topics("old"))
        for _ in range(rounds):
            other.ask(ApiVersionsRequest())
        broker.kill()
    with ExitStack() as stack, BrokerProcess(tmp_path) as broker:
        client = Client(broker, stack)
        found = client.counts()
        assert set(found) <= {"old", "new"}
        assert set(found.values()) <= {PARTITIONS}
        client.create("next", 10)
        assert client.counts() == found | {"next": 10}
        assert broker.errors() == ""
