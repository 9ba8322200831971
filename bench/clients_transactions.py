"""Transactional producers on bare sockets, each with a connection of its own, and all in one thread.

They know version 2 of transactions: the first write adds its partition, and the end of a transaction gives the epoch of
the next one.
"""

import selectors
import time
from collections.abc import Sequence
from typing import Any

from bench.broker_servers import Server
from bench.clients_raw import RawClient, Refused, answer_of, frame_of
from ottla.records.build import build_batch
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.schema import Request

KEY_OF_TRANSACTIONS = 1
TIMEOUT_MS = 60_000
PATIENCE_SECONDS = 60
VALUE = b"x" * 100
WAITING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


class TransactionalClient:
    """Writes a batch in a transaction and commits it, again and again."""

    def __init__(self, server: Server, transactional_id: str, topic: str, records_a_transaction: int) -> None:
        self._transactional_id = transactional_id
        self._topic = topic
        self._values = [VALUE] * records_a_transaction
        self.client = RawClient(server.address)
        self.committed = 0
        self._begin()

    def _begin(self) -> None:
        """Get an id and an epoch, when the coordinator is there."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        find = FindCoordinatorRequest(key=self._transactional_id, key_type=KEY_OF_TRANSACTIONS)
        begin = InitProducerIdRequest(transactional_id=self._transactional_id, transaction_timeout_ms=TIMEOUT_MS)
        while True:
            answer = self.client.ask(find)
            if answer.error_code == 0:
                answer = self.client.ask(begin)
            if answer.error_code == 0:
                self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
                return
            if answer.error_code not in WAITING or time.monotonic() > deadline:
                raise Refused(f"a transactional producer: error {answer.error_code}")
            time.sleep(0.05)

    def write(self) -> None:
        batch = build_batch(
            self._values,
            timestamp=time.time_ns() // 1_000_000,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = [TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
        self._send(
            ProduceRequest(transactional_id=self._transactional_id, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=data)
        )

    def _commit(self) -> None:
        self._send(
            EndTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                committed=True,
            )
        )

    def _send(self, request: Request) -> None:
        self._asked = request
        self.client.socket.sendall(frame_of(request))

    def receive(self) -> None:
        """Take what came, and take the next step."""
        self.client.receive_more()
        frame = self.client.take_frame()
        if frame is None:
            return
        answer = answer_of(self._asked.api, frame)
        code = _code(answer)
        if code in WAITING:
            self._send(self._asked)
        elif code:
            raise Refused(f"{self._asked.api.name}: error {code}")
        elif isinstance(self._asked, ProduceRequest):
            self._commit()
        else:
            self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
            self.committed += 1
            self.write()

    def close(self) -> None:
        self.client.socket.close()


def _code(answer: Any) -> int:
    return int(
        answer.responses[0].partition_responses[0].error_code if hasattr(answer, "responses") else answer.error_code
    )


def transactions_a_second(clients: Sequence[TransactionalClient], seconds: float) -> float:
    """When each begins its next one as soon as the last is committed."""
    with selectors.DefaultSelector() as selector:
        for client in clients:
            selector.register(client.client.socket, selectors.EVENT_READ, client)
        started = time.perf_counter()
        for client in clients:
            client.write()
        while time.perf_counter() - started < seconds or not clients[0].committed:
            for key, _ in selector.select(1):
                key.data.receive()
        return sum(client.committed for client in clients) / (time.perf_counter() - started)
