"""A producer of a simulated cluster: idempotent, with or without transactions, one batch after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.broker.network.peer import PeerFailure
from ottla.records.build import build_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.checker.history import Outcome, Place, SendEnded, SendInvoked, Step, TransactionStep
from tests.sim.client import TRANSACTION, Client, GivenUp, Work

PATIENCE_SECONDS = 30.0
MOST_BATCHES, MOST_VALUES = 4, 4
INIT_VERSION = 5
TIMEOUT_MS = 60_000
NEVER_ANSWERED = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
"""To who sends one batch after the other and keeps its sequence: the log has lost something."""


class Producer(Client):
    def __init__(self, *arguments: Any, places: Sequence[Place], transactions: int = 0) -> None:
        """`transactions`: their version, 1 or 2; 0: none."""
        super().__init__(*arguments)
        self._places = list(places)
        self._transactions = transactions
        self._id = self._epoch = -1
        self._sequences: dict[Place, int] = {}
        self._values = 0
        self.done = 0
        """Transactions that were committed, or batches that were acknowledged."""

    def run(self) -> Work[None]:
        while self.is_wanted:
            self.lives += 1
            try:
                yield from self._begin_life()
                while self.is_wanted:
                    yield from self._something()
                    yield from self.sleep(self.random.choice([0, 0, 0.001, 0.02, 0.3]))
            except GivenUp:
                yield from self.pause()

    def _something(self) -> Work[None]:
        if self._transactions:
            yield from self._transaction()
        else:
            yield from self._batch(self.random.choice(self._places), None)
            self.done += 1

    # Asking

    def _ask_coordinator(self, request: Any, version: int, seconds: float = PATIENCE_SECONDS) -> Work[Any]:
        """An answer that is no passing error."""
        until = self.loop.now() + seconds
        while self.loop.now() < until:
            endpoint = yield from self.coordinator_of(TRANSACTION, self.name)
            answer = yield from self.ask(endpoint, request, version)
            if not isinstance(answer, PeerFailure) and not self.is_passing(_code(answer)):
                return answer
            yield from self.pause()
        raise GivenUp

    def _begin_life(self) -> Work[None]:
        request = InitProducerIdRequest(
            transactional_id=self.name if self._transactions else None, transaction_timeout_ms=TIMEOUT_MS
        )
        while True:
            if self._transactions:
                answer = yield from self._ask_coordinator(request, INIT_VERSION)
            else:
                answer = yield from self.ask_any(request, INIT_VERSION)
            if not isinstance(answer, PeerFailure) and not answer.error_code:
                break
            yield from self.pause()
        self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    # Writing

    def _batch(self, place: Place, transaction: str | None) -> Work[None]:
        values = []
        for _ in range(self.random.randint(1, MOST_VALUES)):
            self._values += 1
            values.append(f"{self.process}:{self._values}")
            self.note(SendInvoked, place=place, value=values[-1], transaction=transaction)
        offset = yield from self._written(place, values)
        self._sequences[place] = self._sequences.get(place, 0) + len(values)
        for index, value in enumerate(values):
            self.note(SendEnded, value=value, outcome=Outcome.OK, offset=offset + index)

    def _written(self, place: Place, values: list[str]) -> Work[int]:
        """The offset of the first value."""
        batch = build_batch(
            [value.encode() for value in values], timestamp=self.machine.system.clock_ms(), producer_id=self._id,
            producer_epoch=self._epoch, base_sequence=self._sequences.get(place, 0),
            is_transactional=bool(self._transactions),
        )  # fmt: skip
        data = [PartitionProduceData(index=place.partition, records=batch)]
        request = ProduceRequest(
            transactional_id=self.name if self._transactions else None, acks=-1, timeout_ms=1500,
            topic_data=[TopicProduceData(name=place.topic, partition_data=data)],
        )  # fmt: skip
        until = self.loop.now() + PATIENCE_SECONDS
        while self.loop.now() < until:
            endpoint = yield from self.leader_of(place)
            answer = yield from self.ask(endpoint, request, 12 if self._transactions == 2 else 11)
            if not isinstance(answer, PeerFailure):
                answered = answer.responses[0].partition_responses[0]
                if not answered.error_code:
                    return int(answered.base_offset)
                if not self.is_passing(answered.error_code):
                    self._look_at(answered.error_code, place)
                    raise GivenUp
            yield from self.pause()
        raise GivenUp

    def _look_at(self, code: int, place: Place) -> None:
        if code in NEVER_ANSWERED:
            self.wrong.append(f"{self.process} was answered {ErrorCode(code).name} in {place}")

    # Transactions

    def _transaction(self) -> Work[None]:
        name = f"{self.process}#{self._values}"
        self.note(TransactionStep, transaction=name, step=Step.BEGIN, outcome=Outcome.OK)
        added: set[Place] = set()
        for _ in range(self.random.randint(1, MOST_BATCHES)):
            place = self.random.choice(self._places)
            if self._transactions == 1 and place not in added:
                yield from self._add(place)
            added.add(place)
            yield from self._batch(place, name)
        yield from self._end(name, Step.COMMIT if self.random.random() < 0.7 else Step.ABORT)

    def _add(self, place: Place) -> Work[None]:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self._id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition])],
        )
        answer = yield from self._ask_coordinator(request, 3)
        if _code(answer):
            raise GivenUp

    def _end(self, name: str, step: Step) -> Work[None]:
        self.note(TransactionStep, transaction=name, step=step, outcome=Outcome.INVOKED)
        request = EndTxnRequest(
            transactional_id=self.name, producer_id=self._id, producer_epoch=self._epoch,
            committed=step is Step.COMMIT,
        )  # fmt: skip
        try:
            answer = yield from self._ask_coordinator(request, 5 if self._transactions == 2 else 4)
        except GivenUp:
            answer = None
        if answer is None or answer.error_code:
            self.note(TransactionStep, transaction=name, step=step, outcome=Outcome.UNKNOWN)
            raise GivenUp
        self.note(TransactionStep, transaction=name, step=step, outcome=Outcome.OK)
        if self._transactions == 2:
            if (answer.producer_id, answer.producer_epoch) != (self._id, self._epoch):
                self._sequences.clear()
            self._id, self._epoch = answer.producer_id, answer.producer_epoch
        self.done += step is Step.COMMIT


def _code(answer: Any) -> int:
    if hasattr(answer, "results_by_topic_v3_and_below"):
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
    return int(answer.error_code)
