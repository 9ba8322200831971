"""Transactions as an administrator sees them: who has one open, since when, and how to end one that nobody will."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.checks import checked_names
from ottla.client.errors import ServerError, all_or_error, raise_for
from ottla.client.group.coordinator import Coordinator, CoordinatorKind
from ottla.client.network.cluster import Cluster
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from ottla.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

NO_OFFSET = -1


class TransactionListing(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    coordinator_id: int


class TransactionDescription(NamedTuple):
    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int  # -1: it has not begun
    partitions: frozenset[tuple[str, int]]


class PartitionProducer(NamedTuple):
    """A producer as a partition remembers it. Without an open transaction its start is -1."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    transaction_start_offset: int


class FencedProducer(NamedTuple):
    """What a producer was given so that those before it may not write any more."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class TransactionAdmin:
    """The part of an Admin that is about transactions."""

    _cluster: Cluster

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        least_duration_ms: int = -1,
        id_pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of all brokers, those that fit every condition given."""
        request = ListTransactionsRequest(
            state_filters=checked_names(states, "states"),
            producer_id_filters=list(producer_ids),
            duration_filter=least_duration_ms,
            transactional_id_pattern=id_pattern,
        )

        async def attempt(node_id: int) -> ListTransactionsResponse:
            answer = await self._cluster.ask(node_id, request, ListTransactionsResponse)
            raise_for(answer.error_code, about="the transactions")
            return answer

        found = []
        for node_id in (await self._cluster.retry(lambda: self._cluster.refresh([]))).brokers:
            answer = await self._cluster.retry(lambda: attempt(node_id))  # noqa: B023 - awaited at once
            if answer.unknown_state_filters:
                names = ", ".join(answer.unknown_state_filters)
                raise ServerError(ErrorCode.INVALID_REQUEST, f"there is no state {names}", about="the transactions")
            found += [
                TransactionListing(row.transactional_id, row.transaction_state, row.producer_id, node_id)
                for row in answer.transaction_states
            ]
        return sorted(found)

    async def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        """The state of the latest transaction of a transactional id, and the partitions in it."""
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        coordinator = Coordinator(self._cluster, CoordinatorKind.TRANSACTION, transactional_id)
        answer = await coordinator.ask_patiently(
            request, DescribeTransactionsResponse, lambda answer: answer.transaction_states[0].error_code
        )
        [row] = answer.transaction_states
        raise_for(row.error_code, about=coordinator.about)
        return TransactionDescription(
            row.transactional_id,
            row.transaction_state,
            row.producer_id,
            row.producer_epoch,
            row.transaction_timeout_ms,
            row.transaction_start_time_ms,
            frozenset((topic.topic, index) for topic in row.topics for index in topic.partitions),
        )

    async def describe_producers(
        self, topic: str, partitions: Iterable[int] | None = None
    ) -> Mapping[int, list[PartitionProducer]]:
        """The producers of partitions, of all if none are named."""
        if partitions is None:
            partitions = range(len((await self._cluster.topic(topic)).partitions))
        return {index: await self._producers_of(topic, index) for index in partitions}

    async def _producers_of(self, topic: str, index: int) -> list[PartitionProducer]:
        return await self._cluster.retry(lambda: self._ask_for_producers(topic, index))

    async def _ask_for_producers(self, topic: str, index: int) -> list[PartitionProducer]:
        leader_id = (await self._cluster.partition(topic, index)).leader_id
        request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
        answer = await self._cluster.ask(leader_id, request, DescribeProducersResponse)
        [row] = answer.topics[0].partitions
        if row.error_code:
            self._cluster.forget(topic)  # another may lead it by now
            raise ServerError(row.error_code, row.error_message, topic=topic, partition=index)
        return [
            PartitionProducer(
                producer.producer_id,
                producer.producer_epoch,
                producer.coordinator_epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.current_txn_start_offset,
            )
            for producer in row.active_producers
        ]

    async def abort_in_partition(self, topic: str, partition: int, start_offset: int) -> PartitionProducer:
        """End the transaction that is open in a partition since an offset, without asking its coordinator.

        For one that hangs: no coordinator knows of it any more. Of any other this tears a part away.
        """
        for producer in await self._producers_of(topic, partition):
            if producer.transaction_start_offset == start_offset != NO_OFFSET:
                await self._write_abort(topic, partition, producer)
                return producer
        sentence = f"no transaction is open there since offset {start_offset}"
        raise ServerError(ErrorCode.INVALID_TXN_STATE, sentence, topic=topic, partition=partition)

    async def _write_abort(self, topic: str, partition: int, producer: PartitionProducer) -> None:
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        leader_id = (await self._cluster.partition(topic, partition)).leader_id
        request = WriteTxnMarkersRequest(markers=[marker])
        answer = await self._cluster.ask(leader_id, request, WriteTxnMarkersResponse)
        code = answer.markers[0].topics[0].partitions[0].error_code
        if code:
            raise ServerError(code, topic=topic, partition=partition)

    async def abort_transaction(self, transactional_id: str) -> None:
        """Abort what a transactional id has open, and fence its producer: the next one begins anew."""
        description = await self.describe_transaction(transactional_id)  # or an unknown id would come into being
        await self._fence(transactional_id, max(description.timeout_ms, 1))

    async def fence_producers(self, transactional_ids: Sequence[str]) -> list[FencedProducer]:
        """End the producers of transactional ids: what they have open is aborted, what they send is refused.

        An id that nobody has used comes to be.
        """
        timeout_ms = self._cluster.options.request_timeout_ms
        errors, done = [], []
        for transactional_id in checked_names(transactional_ids, "transactional_ids"):
            try:
                done.append(await self._fence(transactional_id, timeout_ms))
            except ServerError as error:
                errors.append(error)
        return all_or_error(errors, done)

    async def _fence(self, transactional_id: str, timeout_ms: int) -> FencedProducer:
        """By taking the producer's place."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        coordinator = Coordinator(self._cluster, CoordinatorKind.TRANSACTION, transactional_id)
        answer = await coordinator.ask_patiently(request, InitProducerIdResponse, lambda answer: answer.error_code)
        raise_for(answer.error_code, about=coordinator.about)
        return FencedProducer(transactional_id, answer.producer_id, answer.producer_epoch)
