"""A broker with something on it, and how to ask it: what the worst requests are measured on."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, Self

from ottla.records.build import build_batch
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.schema import Request
from tests.conformance import group_requests, requests
from tests.conformance import transaction_requests as transactions
from tests.conformance.connection import Connection
from tests.conformance.script import Topic
from tests.conformance.transaction_requests import Producer
from tests.faults.broker_process import BrokerProcess

ANSWER_SECONDS = 300.0
CREATE_AT_ONCE = 500
COMMIT_AT_ONCE = 2000
FOLLOWING_ROUNDS = 100
OPTIONS = ("--set", "group.initial.rebalance.delay.ms=0")  # the limits are those that everybody has


class Load(NamedTuple):
    """What is on the broker, and how much one request asks for."""

    topics: int
    partitions: int  # of one topic
    groups: int
    elements: int


FULL = Load(topics=2000, partitions=5000, groups=2000, elements=24_000)
SMALL = Load(topics=100, partitions=1000, groups=100, elements=10_000)


class World:
    """A broker with default limits."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self._stack = ExitStack()
        self._address = self._start()
        self._connection = Connection(self._address)
        self._stack.callback(self._connection.close)
        self._number = 0
        self.names = [f"topic-{number}" for number in range(load.topics)]
        self.groups = [f"group-{number}" for number in range(load.groups)]

    def _start(self) -> tuple[str, int]:
        """Run a broker until the end; its address."""
        folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-limits-")))
        self.broker = self._stack.enter_context(
            BrokerProcess(folder / "data", *OPTIONS, program=["tests.limits.watched_broker"])
        )
        return self.broker.address

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._stack.close()

    def ask(self, request: Request, version: int | None = None) -> Any:
        """The answer; None if the broker closed the connection instead."""
        version = request.api.highest if version is None else version
        self._connection.send(encode_request(1, "worst", request, version))
        frame = self._connection.receive(ANSWER_SECONDS)
        if not isinstance(frame, bytes):
            self._connection.close()
            self._connection = Connection(self._address)
            return None
        return decode_response(frame, request.api, version)[1]

    def longest_round(self) -> float:
        """CPU seconds, since the last time that somebody asked."""
        for _ in range(FOLLOWING_ROUNDS):  # in which it may do what followed from the last request
            self.ask(ApiVersionsRequest())
        os.kill(self.broker.process_id, signal.SIGUSR1)
        self.ask(ApiVersionsRequest())
        return float(self.broker.next_line())

    def new_name(self) -> str:
        self._number += 1
        return f"new-{self._number}"

    def new_names(self, count: int) -> list[str]:
        return [self.new_name() for _ in range(count)]

    def create(self, names: list[str], partitions: int = 1) -> None:
        for start in range(0, len(names), CREATE_AT_ONCE):
            topics = [requests.creatable(name, partitions=partitions) for name in names[start : start + CREATE_AT_ONCE]]
            answer = self.ask(requests.create_topics(*topics))
            assert not any(topic.error_code for topic in answer.topics), answer

    def topic(self, name: str) -> Topic:
        return Topic(name, self.ask(requests.metadata(name)).topics[0].topic_id)

    def commit(self, group: str, topic: Topic, partitions: int) -> None:
        for start in range(0, partitions, COMMIT_AT_ONCE):
            offsets = [(index, 1) for index in range(start, min(start + COMMIT_AT_ONCE, partitions))]
            answer = self.ask(group_requests.commit(group, topic, *offsets))
            assert not any(each.error_code for each in answer.topics[0].partitions)

    def producer(self) -> Producer:
        name = self.new_name()
        while (answer := self.ask(transactions.init(name))).error_code:
            pass
        return Producer(name, answer.producer_id, answer.producer_epoch)

    def member(self, group: str) -> str:
        """Somebody who is in a classic group of its own."""
        member_id: str = self.ask(group_requests.join(group)).member_id
        generation = self.ask(group_requests.join(group, member_id)).generation_id
        self.ask(group_requests.sync(group, generation, member_id, {member_id: b""}))
        return member_id

    def fill(self) -> None:
        """Topics with records, groups with offsets, transactional ids."""
        self.create(self.names)
        self.create(["wide"], self.load.partitions)
        self.wide = self.topic("wide")
        self.first = self.topic(self.names[0])
        batch = build_batch([b"value"] * 10, timestamp=0)
        for rows in _parts(range(self.load.partitions), 1000):
            self.ask(requests.produce_many([(self.wide, index, batch) for index in rows]))
        while self.ask(group_requests.find_coordinators("group-0")).coordinators[0].error_code:
            pass
        self.commit("heavy", self.wide, self.load.partitions)
        for group in self.groups:
            self.commit(group, self.first, 1)
        self.transactional_ids = [self.producer().transactional_id for _ in range(self.load.groups // 10)]
        self.longest_round()


def _parts(numbers: range, size: int) -> Iterator[range]:
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]
