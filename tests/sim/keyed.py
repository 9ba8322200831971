"""Clients of a simulated topic that grows: a producer that chooses partitions by key, a group, and who has it grow."""

from __future__ import annotations

from collections import deque
from typing import Any

from ottla.broker.network.peer import PeerFailure
from ottla.records.build import build_batch
from ottla.records.key_hash import partitions_of_keys
from ottla.wire.messages.expand_in_order import ExpandedTopic, ExpandInOrderRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.checker.history import Isolation, Place
from tests.sim.client import METADATA_VERSION, Client, GivenUp, Work
from tests.sim.consumer import Member, visible

MOST_IN_BATCH = 4
PATIENCE_SECONDS = 12.0
METADATA_SECONDS = 1.5
INIT_VERSION, PRODUCE_VERSION = 5, 11


class KeyedProducer(Client):
    """Counts each of its keys. What was put in line for a partition stays there, as with all clients."""

    def __init__(self, *arguments: Any, topic: str, keys: int) -> None:
        super().__init__(*arguments)
        self._topic = topic
        self._keys = [f"{self.name}-{number}" for number in range(keys)]
        self._count = 0  # of partitions, as it was last told
        self._lines: dict[int, deque[tuple[str, int, float]]] = {}  # with the time until which they are tried
        self._numbers: dict[str, int] = {}
        self.acknowledged: dict[str, set[int]] = {}
        self.failed: set[tuple[str, int]] = set()  # nobody knows whether they were written

    def run(self) -> Work[None]:
        asked_at = -METADATA_SECONDS
        while self.is_wanted:
            if self.loop.now() - asked_at > METADATA_SECONDS or not self._count:
                asked_at = self.loop.now()
                yield from self._ask_for_metadata()
                continue
            key = self.random.choice(self._keys)
            number = self._numbers[key] = self._numbers.get(key, -1) + 1
            [partition] = partitions_of_keys([key.encode()], self._count)
            line = self._lines.get(partition)
            if line is None:
                line = self._lines[partition] = deque()
            line.append((key, number, self.loop.now() + PATIENCE_SECONDS))
            if len(line) == 1:
                self.start(self._send(partition))
            yield from self.sleep(self.random.choice([0, 0.005, 0.02, 0.1]))

    def _ask_for_metadata(self) -> Work[None]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=self._topic)], allow_auto_topic_creation=False)
        answer = yield from self.ask_any(request, METADATA_VERSION)
        if isinstance(answer, PeerFailure):
            yield from self.pause()
        else:
            self._note_leaders(answer)

    def _note_leaders(self, answer: Any) -> None:
        super()._note_leaders(answer)
        if answer.controller_id < 0:
            return  # a broker that is cut off may tell the old number: docs/growing-partitions.md says so
        for topic in answer.topics:
            if topic.name == self._topic and topic.partitions:
                self._count = len(topic.partitions)

    def _send(self, partition: int) -> Work[None]:
        """All that is in line for a partition, batch by batch."""
        line, place = self._lines[partition], Place(self._topic, partition)
        producer_id, epoch, sequence = -1, -1, 0
        while line:
            taken = [line[index] for index in range(min(len(line), self.random.randint(1, MOST_IN_BATCH)))]
            records, until = [(key, number) for key, number, _ in taken], taken[0][2]
            if producer_id < 0:
                producer_id, epoch = yield from self._begin()
                sequence = 0
            try:
                yield from self._written(place, records, (producer_id, epoch, sequence), until)
            except GivenUp:
                self.failed.update(records)
                producer_id = -1  # what comes next would not follow
            else:
                sequence += len(records)
                for key, number in records:
                    self.acknowledged.setdefault(key, set()).add(number)
            for _ in records:
                line.popleft()

    def _begin(self) -> Work[tuple[int, int]]:
        while True:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = yield from self.ask_any(request, INIT_VERSION)
            if not isinstance(answer, PeerFailure) and not answer.error_code:
                return int(answer.producer_id), int(answer.producer_epoch)
            yield from self.pause()

    def _written(
        self, place: Place, records: list[tuple[str, int]], producer: tuple[int, int, int], until: float
    ) -> Work[None]:
        batch = build_batch(
            [f"{key}:{number}".encode() for key, number in records], keys=[key.encode() for key, _ in records],
            timestamp=self.machine.system.clock_ms(), producer_id=producer[0], producer_epoch=producer[1],
            base_sequence=producer[2],
        )  # fmt: skip
        data = [PartitionProduceData(index=place.partition, records=batch)]
        request = ProduceRequest(
            acks=-1, timeout_ms=1500, topic_data=[TopicProduceData(name=place.topic, partition_data=data)]
        )
        while self.loop.now() < until:
            endpoint = yield from self.leader_of(place)
            answer = yield from self.ask(endpoint, request, PRODUCE_VERSION)
            if not isinstance(answer, PeerFailure):
                answered = answer.responses[0].partition_responses[0]
                if not answered.error_code:
                    return
                if not self.is_passing(answered.error_code):
                    raise GivenUp
            yield from self.pause()
        raise GivenUp


class KeyedMember(Member):
    """Of a group. All members write down what they read in one list, as it happens."""

    def __init__(self, *arguments: Any, group: str, topic: str, read: list[tuple[str, int, Place, int]]) -> None:
        super().__init__(*arguments, group=group, topic=topic)
        self._read = read

    def poll(self, place: Place, offset: int, isolation: Isolation, wait_ms: int = 0) -> Work[int | None]:
        data = yield from self.fetch(place, offset, isolation, wait_ms)
        if data is None:
            return None
        records, next_offset = visible(data, offset, isolation)
        for at, value in records:
            key, _, number = value.rpartition(":")
            self._read.append((key, int(number), place, at))
        return next_offset


class Grower(Client):
    """Has a topic grow, and asks again where it does not know whether it was heard."""

    def grow(self, topic: str, total: int, quiet_ms: int) -> Work[None]:
        asked = ExpandedTopic(name=topic, count=total, quiet_ms=quiet_ms)
        while self.is_wanted:
            if (yield from self._count(topic)) >= total:
                return
            yield from self.ask_any(ExpandInOrderRequest(topics=[asked]), 0)
            yield from self.pause()

    def _count(self, topic: str) -> Work[int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        answer = yield from self.ask_any(request, METADATA_VERSION)
        return 0 if isinstance(answer, PeerFailure) else len(answer.topics[0].partitions)
