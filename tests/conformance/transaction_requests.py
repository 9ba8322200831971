"""Requests of transactions as exchanges write them, and producers made ready for an exchange."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_transactions import ListTransactionsRequest
from ottla.wire.messages.produce import ProduceRequest
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.conformance.batches import sequenced
from tests.conformance.masks import ANOTHER_PRODUCER
from tests.conformance.requests import produce
from tests.conformance.script import Script, Topic

TIMEOUT_MS = 60_000
LAST_VERSION_WITH_ONE_TRANSACTION = 3
COMMIT, ABORT = True, False
RESULTS = {"commit": COMMIT, "abort": ABORT}


class Producer(NamedTuple):
    transactional_id: str
    id: int
    epoch: int


Changed: TypeAlias = Callable[[Producer], Producer]

OTHERS: dict[str, Changed] = {
    "an unknown transactional id": lambda producer: producer._replace(
        transactional_id=f"no-{producer.transactional_id}"
    ),
    "an empty transactional id": lambda producer: producer._replace(transactional_id=""),
    "another producer id": lambda producer: producer._replace(id=producer.id + ANOTHER_PRODUCER),
    "an earlier epoch": lambda producer: producer._replace(epoch=producer.epoch - 1),
    "a later epoch": lambda producer: producer._replace(epoch=producer.epoch + 1),
}
"""Who a producer of the second epoch is taken for when it tells one thing wrongly."""


def init(
    transactional_id: str | None, *, timeout_ms: int = TIMEOUT_MS, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
    )


def init_again(producer: Producer) -> InitProducerIdRequest:
    """With the id and the epoch that it has."""
    return init(producer.transactional_id, producer_id=producer.id, epoch=producer.epoch)


def ready_producer(script: Script, label: str = "transaction", *, timeout_ms: int = TIMEOUT_MS) -> Producer:
    transactional_id = script.transactional_id(label)
    request = init(transactional_id, timeout_ms=timeout_ms)
    answer = script.ask_until(request, until=lambda answer: answer.error_code == 0)
    return Producer(transactional_id, answer.producer_id, answer.producer_epoch)


def second_epoch(script: Script) -> Producer:
    producer = ready_producer(script)
    return producer._replace(epoch=script.ask(init(producer.transactional_id)).producer_epoch)


def add_partitions(
    producer: Producer, topics: Mapping[str, Sequence[int]], *, version: int = 5, verify_only: bool = False
) -> AddPartitionsToTxnRequest:
    """In the shape of a version."""
    added = [AddPartitionsToTxnTopic(name=name, partitions=list(indexes)) for name, indexes in topics.items()]
    if version <= LAST_VERSION_WITH_ONE_TRANSACTION:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=added,
        )
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        verify_only=verify_only,
        topics=added,
    )
    return AddPartitionsToTxnRequest(transactions=[transaction])


def add_offsets(producer: Producer, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        group_id=group,
    )


def commit_offsets(
    producer: Producer, group: str, topic: Topic, *offsets: tuple[int, int], generation: int = -1,
    member_id: str = "", instance: str | None = None, metadata: str | None = "",
) -> TxnOffsetCommitRequest:  # fmt: skip
    """Offsets are a partition and an offset; 5 of partition 0 unless told."""
    partitions = [
        TxnOffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata=metadata)
        for partition, offset in offsets or [(0, 5)]
    ]
    return TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        generation_id=generation,
        member_id=member_id,
        group_instance_id=instance,
        topics=[TxnOffsetCommitRequestTopic(name=topic.name, partitions=partitions)],
    )


def end(producer: Producer, committed: bool = COMMIT) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        committed=committed,
    )


def write(
    producer: Producer, topic: Topic, sequence: int = 0, *, count: int = 1, partition: int = 0, **options: Any
) -> ProduceRequest:
    """A transactional batch."""
    options.setdefault("is_transactional", True)
    batch = sequenced(producer.id, sequence, epoch=producer.epoch, count=count, **options)
    return produce(topic, batch, partition=partition, acks=-1, transactional_id=producer.transactional_id)


def list_transactions(
    *, states: Sequence[str] = (), producers: Sequence[int] = (), duration_ms: int = -1, pattern: str | None = None
) -> ListTransactionsRequest:
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producers),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )


def describe_transactions(*transactional_ids: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(transactional_ids=list(transactional_ids))


def describe_producers(topics: Mapping[str, Sequence[int]]) -> DescribeProducersRequest:
    return DescribeProducersRequest(
        topics=[TopicRequest(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()]
    )


def marker(
    producer: Producer, topics: Mapping[str, Sequence[int]], *, committed: bool = COMMIT, coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> WriteTxnMarkersRequest:  # fmt: skip
    written = WritableTxnMarker(
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        transaction_result=committed,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=list(indexes)) for name, indexes in topics.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    return WriteTxnMarkersRequest(markers=[written])


def ended(script: Script, producer: Producer, committed: bool = COMMIT, version: int = 5) -> Producer:
    """Ends a transaction, waits until its markers are written, and returns what the producer goes on with."""
    answer = script.ask_until(end(producer, committed), version, until=lambda answer: answer.error_code == 0)
    await_transaction(script, producer, "CompleteCommit" if committed else "CompleteAbort")
    return producer if version < 5 else producer._replace(id=answer.producer_id, epoch=answer.producer_epoch)


def await_transaction(script: Script, producer: Producer, state: str) -> None:
    request = describe_transactions(producer.transactional_id)
    script.ask_until(request, until=lambda answer: answer.transaction_states[0].transaction_state == state)


def written(script: Script, producer: Producer, topic: Topic, sequence: int = 0, **options: Any) -> None:
    """A transactional batch is appended; the first of a producer must wait for the transaction before."""
    request = write(producer, topic, sequence, **options)
    script.ask_until(request, 12, until=lambda answer: answer.responses[0].partition_responses[0].error_code == 0)
