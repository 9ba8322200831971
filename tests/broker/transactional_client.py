"""A client that knows transactions, of either version, on a simulated broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from ottla.records.build import build_batch
from ottla.records.read import read_batches
from ottla.testing.simulated_client import SimulatedClient
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.sim.simulated_broker import SimulatedBroker

ID, TOPIC = "payments", "t"
VERSION_1, VERSION_2 = 1, 2
READ_COMMITTED = 1
RETRIED = (14, 15, 16, 51)

Producer = tuple[int, int]


class TransactionalClient:
    def __init__(self, broker: SimulatedBroker, transactional_id: str = ID, version: int = VERSION_2) -> None:
        self.broker = broker
        self.transactional_id = transactional_id
        self.version = version
        self.connection: SimulatedClient = broker.client()
        self.producer: Producer = (-1, -1)

    def init(self, timeout_ms: int = 60_000) -> Producer:
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        answer = self._until_settled(request, 5)
        self.producer = answer.producer_id, answer.producer_epoch
        return self.producer

    def add(self, *indexes: int, producer: Producer | None = None) -> int:
        """What a client of version 1 sends before it writes."""
        producer_id, epoch = producer or self.producer
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=list(indexes))],
        )
        answer = self.connection.ask(request, 3)
        return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def add_offsets(self, group: str) -> int:
        """What a client of version 1 sends before it commits offsets."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            group_id=group,
        )
        return int(self._until_settled(request, 3).error_code)

    def write_request(
        self, index: int, sequence: int, *values: bytes, producer: Producer | None = None
    ) -> ProduceRequest:
        producer_id, epoch = producer or self.producer
        batch = build_batch(
            values,
            timestamp=self.broker.system.clock_ms(),
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=index, records=batch)]
        return ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=TOPIC, partition_data=data)],
        )

    @property
    def produce_version(self) -> int:
        return 12 if self.version == VERSION_2 else 11

    def send_write(self, index: int, sequence: int, *values: bytes, producer: Producer | None = None) -> int:
        """Send a write on its way, without waiting for its answer."""
        request = self.write_request(index, sequence, *values, producer=producer)
        return self.connection.send(request, self.produce_version)

    def write(self, index: int, sequence: int, *values: bytes, producer: Producer | None = None) -> int:
        """The error code of a write."""
        return self.written(self.send_write(index, sequence, *values, producer=producer))[0]

    def written(self, number: int) -> tuple[int, int]:
        """The error code and the offset that a write was answered with."""
        answer = self.connection.answer(number)
        [partition] = answer.responses[0].partition_responses
        return partition.error_code, partition.base_offset

    def end_request(self, *, is_commit: bool, producer: Producer | None = None) -> EndTxnRequest:
        producer_id, epoch = producer or self.producer
        return EndTxnRequest(
            transactional_id=self.transactional_id, producer_id=producer_id, producer_epoch=epoch, committed=is_commit
        )

    @property
    def end_version(self) -> int:
        return 5 if self.version == VERSION_2 else 4

    def end(self, *, is_commit: bool, producer: Producer | None = None) -> int:
        """The error code; the producer of the next transaction is noted."""
        answer = self._until_settled(self.end_request(is_commit=is_commit, producer=producer), self.end_version)
        if not answer.error_code and self.version == VERSION_2:
            self.producer = answer.producer_id, answer.producer_epoch
        return int(answer.error_code)

    def state(self) -> str:
        answer = self.connection.ask(DescribeTransactionsRequest(transactional_ids=[self.transactional_id]))
        return str(answer.transaction_states[0].transaction_state)

    def _until_settled(self, request: Any, version: int) -> Any:
        """The answer, after as many tries as the broker asks for."""
        for _ in range(1000):
            answer = self.connection.ask(request, version)
            if answer.error_code not in RETRIED:
                return answer
            self.broker.advance(0.01)
        raise TimeoutError(f"the broker cannot do it: {answer}")


def read(broker: SimulatedBroker, index: int, isolation: int = READ_COMMITTED) -> list[bytes]:
    """What a consumer sees of a partition: with its isolation, aborted records are left out as clients do it."""
    wanted = FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, isolation_level=isolation, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])]
    )
    answer = broker.client().ask(request, 12)
    return visible(answer.responses[0].partitions[0])


def visible(data: PartitionData) -> list[bytes]:
    aborted = sorted((entry.first_offset, entry.producer_id) for entry in data.aborted_transactions or ())
    values: list[bytes] = []
    dropped: set[int] = set()
    for batch in read_batches(cast(bytes, data.records), with_control=True):
        header = batch.header
        while aborted and aborted[0][0] <= header.last_offset:
            dropped.add(aborted.pop(0)[1])
        if header.is_control:
            dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            values += [cast(bytes, record.value) for record in batch.records()]
    return values


def all_read(broker: SimulatedBroker, indexes: Sequence[int], isolation: int = READ_COMMITTED) -> list[list[bytes]]:
    return [read(broker, index, isolation) for index in indexes]
