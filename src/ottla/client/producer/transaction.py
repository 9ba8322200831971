"""Transactions: what is written inside, and the offsets of what was read, become visible together or not at all.

Version 2 (KIP-890) is used where the cluster has it: partitions join by being written to, and each
transaction has an epoch of its own, so that nothing late can land in a later one. Version 1 is used elsewhere.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from ottla.client.errors import (
    ClientError,
    CommitFailed,
    ProducerFenced,
    TransactionAborted,
)
from ottla.client.group.coordinator import Coordinator, CoordinatorKind
from ottla.client.group.offsets import GroupOffsets, HasGroupOffsets, Offset, TopicPartition
from ottla.client.network.cluster import Cluster
from ottla.client.producer.batch import ANONYMOUS, Identity
from ottla.client.producer.buffer import Buffer, settled
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.produce import Produce
from ottla.client.producer.sender import Gate, Sender
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

FEATURE = "transaction.version"
_LAST_END_OF_VERSION_1 = 4
_LAST_OFFSET_COMMIT_OF_VERSION_1 = 4
_LAST_ADD_PARTITIONS_OF_CLIENTS = 3
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
_NOT_A_MEMBER = (
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
)


class TransactionManager(Gate):
    """One producer's transactions, one after the other."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(cluster, CoordinatorKind.TRANSACTION, transactional_id)
        self._joins_by_writing = False
        self._is_open = False
        self._error: ClientError | None = None
        self._written: set[tuple[str, int]] = set()
        """Partitions that are in the transaction."""
        self._joining: set[tuple[str, int]] = set()
        self._groups: set[str] = set()
        self._adding: asyncio.Task[None] | None = None

    async def begin_with(self, sender: Sender, buffer: Buffer, produce: Produce) -> None:
        """The producer opens: whoever had the transactional id before is fenced, and its transaction aborted."""
        self._sender = sender
        self._buffer = buffer
        features = await self._cluster.retry(self._cluster.features)
        self._joins_by_writing = features.get(FEATURE, 0) >= 2
        sender.produce = produce._replace(
            transactional_id=self.transactional_id, joins_by_writing=self._joins_by_writing
        )
        sender.renumbers = False
        sender.gate = self
        buffer.refuse(_outside())
        sender.become(await self._identify())

    async def _identify(self, known: Identity = ANONYMOUS) -> Identity:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )
        answer = await self._coordinator.ask_patiently(
            request, InitProducerIdResponse, lambda answer: answer.error_code
        )
        self._check(answer.error_code)
        return Identity(answer.producer_id, answer.producer_epoch)

    def _check(self, code: int) -> None:
        if code in _FENCED:
            error = ProducerFenced(
                f"{self._coordinator.about}: another producer has taken it over, or a transaction took too long"
            )
            self._buffer.refuse(error)
            raise error
        if code:
            error_of_code = self._coordinator.error(code)
            assert error_of_code is not None
            raise error_of_code

    # One transaction.

    def begin(self) -> None:
        if self._is_open:
            raise RuntimeError("there is a transaction already: a producer has one at a time")
        if isinstance(self._buffer.refusal, ClientError):
            raise self._buffer.refusal.again()
        self._is_open = True
        self._error = None
        self._written.clear()
        self._groups.clear()
        self._buffer.refuse(None)

    async def commit(self, flush: Callable[[], Awaitable[None]]) -> None:
        try:
            try:
                await flush()
            finally:
                if self._error is not None:
                    raise self._error.again()  # what failed first is the reason for all else
            await self._end(is_commit=True)
        except ClientError:
            if self._is_open and not isinstance(self._buffer.refusal, ProducerFenced):
                await self.abort()
            raise
        finally:
            self._close()

    async def abort(self) -> None:
        try:
            self._sender.give_up(TransactionAborted("the transaction was aborted"))
            if self._adding is not None:
                await asyncio.gather(self._adding, return_exceptions=True)
            for chunk in self._buffer.unsettled():
                await settled(chunk)
            self._sender.take_lost()
            await self._end(is_commit=False)
            if not self._joins_by_writing:
                # What was numbered and not written leaves a gap: a new epoch starts anew.
                self._sender.become(await self._identify(self._sender.identity))
        finally:
            self._close()

    def _close(self) -> None:
        self._is_open = False
        if not isinstance(self._buffer.refusal, ClientError):
            self._buffer.refuse(_outside())

    async def _end(self, *, is_commit: bool) -> None:
        if not self._written and not self._groups:
            return
        identity = self._sender.identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )
        at_most = None if self._joins_by_writing else _LAST_END_OF_VERSION_1
        answer = await self._coordinator.ask_patiently(
            request, EndTxnResponse, lambda answer: answer.error_code, at_most=at_most
        )
        self._check(answer.error_code)
        if self._joins_by_writing:
            self._sender.become(Identity(answer.producer_id, answer.producer_epoch))

    # What the sender asks.

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether a partition is in the transaction. In version 1 it has to be brought in first."""
        place = queue.topic, queue.index
        if place in self._written:
            return True
        if self._joins_by_writing:
            self._written.add(place)
            return True
        self._joining.add(place)
        if self._adding is None or self._adding.done():
            self._adding = asyncio.create_task(self._add_partitions())
        return False

    def failed(self, error: ClientError) -> None:
        """A record was not written: the transaction can only be aborted."""
        if self._error is None:
            self._error = error

    async def _add_partitions(self) -> None:
        try:
            while self._joining:
                joining, self._joining = self._joining, set()
                await self._cluster.retry(lambda: self._try_adding(joining))  # noqa: B023 - awaited at once
                self._written |= joining
        except ClientError as error:
            self.failed(error)
            self._sender.give_up(error)
        self._sender.wake()

    async def _try_adding(self, joining: set[tuple[str, int]]) -> None:
        topics: defaultdict[str, list[int]] = defaultdict(list)
        for topic, index in sorted(joining):
            topics[topic].append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._sender.identity.producer_id,
            v3_and_below_producer_epoch=self._sender.identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        answer = await self._coordinator.ask(
            request, AddPartitionsToTxnResponse, at_most=_LAST_ADD_PARTITIONS_OF_CLIENTS
        )
        codes = {
            row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        codes -= {0, ErrorCode.OPERATION_NOT_ATTEMPTED}
        for code in codes:
            self._check(code)

    # Offsets.

    async def send_offsets(self, given: GroupOffsets) -> None:
        membership, offsets = given
        if not offsets:
            return
        if not self._joins_by_writing:
            await self._add_group(membership.group_id)
        self._groups.add(membership.group_id)
        coordinator = Coordinator(self._cluster, CoordinatorKind.GROUP, membership.group_id)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=membership.group_id,
            producer_id=self._sender.identity.producer_id,
            producer_epoch=self._sender.identity.epoch,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=_offset_topics(offsets),
        )
        at_most = None if self._joins_by_writing else _LAST_OFFSET_COMMIT_OF_VERSION_1
        answer = await coordinator.ask_patiently(request, TxnOffsetCommitResponse, _offset_commit_code, at_most=at_most)
        code = _offset_commit_code(answer)
        if code in _NOT_A_MEMBER:
            raise CommitFailed(
                f"group {membership.group_id} has given the partitions to another member. "
                "The transaction is aborted; what it read will be read again, by whoever has the partitions"
            )
        self._check(code)

    async def _add_group(self, group_id: str) -> None:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._sender.identity.producer_id,
            producer_epoch=self._sender.identity.epoch,
            group_id=group_id,
        )
        answer = await self._coordinator.ask_patiently(
            request, AddOffsetsToTxnResponse, lambda answer: answer.error_code
        )
        self._check(answer.error_code)


def _outside() -> RuntimeError:
    return RuntimeError("a producer with a transactional_id sends inside `with producer.transaction()`")


def _offset_topics(offsets: Mapping[TopicPartition, Offset]) -> list[TxnOffsetCommitRequestTopic]:
    topics: defaultdict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
    for place, offset in offsets.items():
        topics[place.topic].append(
            TxnOffsetCommitRequestPartition(
                partition_index=place.partition,
                committed_offset=offset.offset,
                committed_leader_epoch=offset.leader_epoch,
                committed_metadata=offset.metadata,
            )
        )
    return [TxnOffsetCommitRequestTopic(name=name, partitions=rows) for name, rows in topics.items()]


def _offset_commit_code(answer: TxnOffsetCommitResponse) -> int:
    """The first error; offsets are kept all or none."""
    return next((row.error_code for topic in answer.topics for row in topic.partitions if row.error_code), 0)


class Transaction:
    """Made by `Producer.transaction`. What the producer sends inside of it is part of it."""

    def __init__(self, manager: TransactionManager, flush: Callable[[], Awaitable[None]]) -> None:
        self._manager = manager
        self._flush = flush

    async def __aenter__(self) -> Self:
        self._manager.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None:
            await self._manager.commit(self._flush)
            return
        try:
            await self._manager.abort()
        except ClientError as trouble:
            # The error that brought us here matters more: the coordinator aborts what is left open.
            if error is not None:
                error.add_note(f"and the transaction could not be aborted: {trouble}")

    async def send_offsets(self, consumer: HasGroupOffsets | GroupOffsets) -> None:
        """What the consumer has read becomes part of the transaction: CommitFailed if it has lost its partitions."""
        given = consumer if isinstance(consumer, GroupOffsets) else consumer.group_offsets()
        await self._manager.send_offsets(given)
