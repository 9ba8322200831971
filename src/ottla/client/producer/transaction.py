"""Transactions: what is written inside, and the offsets of what was read, become visible together or not at all.

Version 2 (KIP-890) is used where the cluster has it: partitions join by being written to, and each
transaction has an epoch of its own, so that nothing late can land in a later one. Version 1 is used elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Self, TypeVar

from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    CommitFailed,
    DeliveryFailed,
    ProducerFenced,
    ServerError,
    TransactionAborted,
    TransactionUnresolved,
    UnsupportedByBroker,
)
from ottla.client.group.coordinator import Coordinator, CoordinatorKind
from ottla.client.group.offsets import GroupOffsets, HasGroupOffsets, TopicPartition, as_offsets
from ottla.client.network.cluster import Cluster
from ottla.client.network.retry import Pace
from ottla.client.producer.batch import ANONYMOUS, Identity
from ottla.client.producer.buffer import Buffer
from ottla.client.producer.partition_queue import PartitionQueue
from ottla.client.producer.produce import Produce
from ottla.client.producer.sender import Sender
from ottla.client.producer.transaction_codes import (
    FENCED,
    NOT_A_MEMBER,
    OF_AN_ENDED_ONE,
    is_settled,
    is_settled_commit,
)
from ottla.client.producer.transaction_offsets import ask_to_keep, offset_topics
from ottla.client.producer.transaction_state import Phase, TransactionEvent, TransactionState
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from ottla.wire.schema import Request, Response

R = TypeVar("R", bound=Response)
_logger = logging.getLogger("ottla.client")

FEATURE = "transaction.version"
_LAST_END_OF_VERSION_1 = 4
_LAST_OFFSET_COMMIT_OF_VERSION_1 = 4
_LAST_ADD_PARTITIONS_OF_CLIENTS = 3


class TransactionManager:
    """One producer's transactions, one after the other.

    The end of a transaction is asked for by a task of the manager's own, which goes on until it has an answer: whoever
    is cancelled, or has waited long enough, leaves it at work, and the next transaction waits for it.
    """

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int) -> None:
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._coordinator = Coordinator(cluster, CoordinatorKind.TRANSACTION, transactional_id)
        self._joins_by_writing = False
        self._state = TransactionState()
        self._adding: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None
        self._sending_offsets = 0
        self._began = 0.0

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
        request = self._init_request(ANONYMOUS)
        answer = await self._coordinator.ask_patiently(
            request, InitProducerIdResponse, lambda answer: answer.error_code
        )
        self._check(answer.error_code)
        sender.become(Identity(answer.producer_id, answer.producer_epoch))
        self._state.why_unusable = ""

    def _init_request(self, known: Identity) -> InitProducerIdRequest:
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=known.producer_id,
            producer_epoch=known.epoch,
        )

    def _check(self, code: int, note: str = "") -> None:
        if code in FENCED:
            error = ProducerFenced(
                f"{self._coordinator.about}: another producer has taken it over, or a transaction took too long{note}"
            )
            self._state.end_for_good(error)
            self._buffer.refuse(error)
            raise error
        if code:
            error_of_code = self._coordinator.error(code)
            assert error_of_code is not None
            raise error_of_code

    # One transaction.

    async def begin(self) -> None:
        """When the one before has ended, which nobody may have waited for."""
        self._state.check_usable()
        if self._ending is not None:
            try:
                await self._await_end()
            except TransactionUnresolved as error:
                error.is_retriable = True
                raise
            except ClientError:
                if self._state.fence is not None:
                    raise
                # It has been told, or nobody wanted to know: it was not committed, and that is settled.
            self._state.check_usable()  # meanwhile
        self._state.step(TransactionEvent.BEGIN)
        self._began = asyncio.get_running_loop().time()
        self._sender.go_on()
        self._buffer.refuse(None)

    async def commit(self, flush: Callable[[], Awaitable[None]]) -> None:
        """Raises what went wrong, and the transaction is aborted then; TransactionUnresolved if nobody knows yet."""
        if self._has_ended:
            raise (self._state.error or _closed_inside()).again()
        if self._sending_offsets:
            self._state.fail(TransactionAborted("its offsets were still being sent when it was to be committed"))
        self._state.step(TransactionEvent.CLOSE)
        self._buffer.refuse(RuntimeError("the transaction is being committed: nothing can be added to it"))
        try:
            await flush()
        except DeliveryFailed as error:
            self._state.fail(error)
        except BaseException:
            if self._state.is_in_progress:
                self._start_end(is_commit=False)
            raise
        if self._state.phase is Phase.CLOSING:
            await self._end(is_commit=True)
            return
        error_of_it = self._state.error or _closed_inside()
        if self._state.is_in_progress:
            try:
                await self._end(is_commit=False)
            except ClientError as trouble:
                _logger.info("%s: the abort of a transaction: %s", self._coordinator.about, trouble)
        if self._state.fence is None and isinstance(error_of_it, ServerError) and error_of_it.code in OF_AN_ENDED_ONE:
            raise self._aborted_by_coordinator() from error_of_it
        raise (self._state.fence or error_of_it).again()

    async def abort(self) -> None:
        if self._state.fence is not None:
            self._sender.give_up(TransactionAborted("the transaction was aborted"))
            self._sender.failures.take()
            return
        if not self._has_ended:
            await self._end(is_commit=False)

    @property
    def _has_ended(self) -> bool:
        """Before its block is left: the producer was closed."""
        return self._state.fence is None and not self._state.is_in_progress

    async def close(self, wait_seconds: float) -> None:
        """What is still to be ended is tried for a moment; the coordinator aborts what is left open."""
        self._state.why_unusable = "this producer is closed"
        if self._state.is_in_progress:
            self._start_end(is_commit=False)
        ending = self._ending
        if ending is None or ending.done():
            return
        try:
            await asyncio.wait([ending], timeout=wait_seconds)
        finally:  # whoever is cancelled leaves nothing at work either
            if not ending.done():
                _logger.warning("%s: closed before the end of its transaction was known", self._coordinator.about)
                ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)

    # Its end.

    async def _end(self, *, is_commit: bool) -> None:
        self._start_end(is_commit=is_commit)
        await self._await_end()

    def _start_end(self, *, is_commit: bool) -> None:
        self._state.step(TransactionEvent.COMMIT if is_commit else TransactionEvent.ABORT)
        self._ending = asyncio.create_task(self._commit_it() if is_commit else self._abort_it())
        self._ending.add_done_callback(_look_at)

    async def _await_end(self) -> None:
        ending = self._ending
        assert ending is not None
        timeout_ms = self._cluster.options.retry_timeout_ms
        done, _ = await asyncio.wait([ending], timeout=timeout_ms / 1000)
        if not done:
            raise TransactionUnresolved(
                f"{self._coordinator.about}: no answer to the end of the transaction within {timeout_ms / 1000:g} s: "
                "its outcome is unknown, and is still being asked for"
            )
        if self._ending is ending:  # whoever begins the next one waits for it, too
            self._ending = None
        ending.result()

    async def _commit_it(self) -> None:
        try:
            if not self._state.is_empty:
                await self._ask_to_end(is_commit=True)
        except ClientError as error:
            if self._state.fence is None:
                # The coordinator will not commit it.
                self._state.step(TransactionEvent.REFUSED)
                self._state.step(TransactionEvent.ABORT)
                await self._abort_it()
            if isinstance(error, ServerError) and error.code == ErrorCode.INVALID_TXN_STATE:
                raise self._aborted_by_coordinator() from error
            raise
        self._ended()

    def _aborted_by_coordinator(self) -> TransactionAborted:
        is_late = (asyncio.get_running_loop().time() - self._began) * 1000 >= self._timeout_ms
        reason = f", for its end was not asked for within transaction_timeout_ms={self._timeout_ms}" if is_late else ""
        return TransactionAborted(f"{self._coordinator.about}: the coordinator has aborted the transaction{reason}")

    async def _abort_it(self) -> None:
        self._buffer.refuse(_outside())
        self._sender.give_up(TransactionAborted("the transaction was aborted"))
        if self._adding is not None:
            await asyncio.gather(self._adding, return_exceptions=True)
        await self._sender.rest()
        self._sender.failures.take()
        needs_epoch = not self._joins_by_writing
        if not self._state.is_empty:
            try:
                await self._ask_to_end(is_commit=False)
            except ClientError:
                if self._state.fence is not None:
                    raise
                needs_epoch = True  # whatever the coordinator has of it: a new epoch ends it
        if needs_epoch:
            # What was numbered and not written leaves a gap: a new epoch starts anew.
            await self._take_new_epoch()
        self._ended()

    def _ended(self) -> None:
        self._state.step(TransactionEvent.ENDED)
        self._buffer.refuse(_outside())

    async def _take_new_epoch(self) -> None:
        try:
            answer, _ = await self._ask_until_answered(
                self._init_request(self._sender.identity), InitProducerIdResponse, is_settled
            )
            self._check(answer.error_code)
        except ClientError as error:
            self._state.end_for_good(error)
            self._buffer.refuse(error)
            raise
        self._sender.become(Identity(answer.producer_id, answer.producer_epoch))

    async def _ask_to_end(self, *, is_commit: bool) -> None:
        """The same request until it is answered: the coordinator knows it again, and tells what it did before."""
        identity = self._sender.identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=is_commit,
        )
        at_most = None if self._joins_by_writing else _LAST_END_OF_VERSION_1
        is_settled_end = is_settled_commit if is_commit else is_settled
        answer, was_lost = await self._ask_until_answered(request, EndTxnResponse, is_settled_end, at_most=at_most)
        unknown = "; whether the last transaction was committed is not known" if was_lost and is_commit else ""
        self._check(answer.error_code, unknown)
        if self._joins_by_writing:
            self._sender.become(Identity(answer.producer_id, answer.producer_epoch))

    async def _ask_until_answered(
        self, request: Request, answer: type[R], is_settled: Callable[[int], bool], *, at_most: int | None = None
    ) -> tuple[R, bool]:
        """An answer that trying again would not change; and whether an earlier one was lost, or said nothing."""
        pace = Pace(self._cluster.options.retry_pause_ms)
        was_lost = False
        while True:
            try:
                answered = await self._coordinator.ask(request, answer, at_most=at_most)
            except UnsupportedByBroker:
                raise
            except ClientError as error:
                was_lost = was_lost or not isinstance(error, BrokerUnreachable)
            else:
                code: int = answered.error_code  # type: ignore[attr-defined]
                error_of_code = self._coordinator.error(code)
                if error_of_code is None or is_settled(code):
                    return answered, was_lost
                was_lost = was_lost or not error_of_code.is_retriable
            pace.slow_down()
            await pace.wait()

    # What the sender asks.

    def admits(self, queue: PartitionQueue) -> bool:
        """Whether a partition is in the transaction. In version 1 it has to be brought in first."""
        place = queue.topic, queue.index
        if place in self._state.partitions:
            return True
        if self._joins_by_writing:
            self._state.joined([place])
            return True
        self._state.joining.add(place)
        if self._adding is None or self._adding.done():
            self._adding = asyncio.create_task(self._add_partitions())
        return False

    def failed(self, error: ClientError) -> None:
        """A record was not written: the transaction can only be aborted."""
        self._state.fail(error)

    async def _add_partitions(self) -> None:
        try:
            while joining := self._state.take_joining():
                await self._cluster.retry(lambda: self._try_adding(joining))
                self._state.joined(joining)
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
            (topic.name, row.partition_index): row.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for row in topic.results_by_partition
        }
        found = {codes.get(place, ErrorCode.UNKNOWN_SERVER_ERROR) for place in joining}
        for code in sorted(found - {0, ErrorCode.OPERATION_NOT_ATTEMPTED}):
            self._check(code)

    # Offsets.

    async def send_offsets(self, given: GroupOffsets) -> None:
        """If it fails, or is not waited for, the transaction can only be aborted: it would be without its offsets."""
        if self._state.phase is not Phase.OPEN and self._state.phase is not Phase.FAILED:
            raise RuntimeError("offsets are sent inside `with producer.transaction()`")
        self._sending_offsets += 1
        try:
            await self._send_offsets(given)
        except BaseException as error:
            if isinstance(error, ClientError):
                self._state.fail(error)
            else:
                self._state.fail(TransactionAborted("the offsets of the transaction were not sent to their end"))
            raise
        finally:
            self._sending_offsets -= 1

    async def _send_offsets(self, given: GroupOffsets) -> None:
        membership, offsets = given.membership, as_offsets(given.offsets)
        if not offsets:
            return
        self._state.groups.add(membership.group_id)
        if not self._joins_by_writing:
            await self._add_group(membership.group_id)
        coordinator = Coordinator(self._cluster, CoordinatorKind.GROUP, membership.group_id)
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=membership.group_id,
            producer_id=self._sender.identity.producer_id,
            producer_epoch=self._sender.identity.epoch,
            generation_id=membership.generation,
            member_id=membership.member_id,
            group_instance_id=membership.instance_id,
            topics=offset_topics(offsets),
        )
        at_most = None if self._joins_by_writing else _LAST_OFFSET_COMMIT_OF_VERSION_1
        code = await ask_to_keep(coordinator, request, offsets, at_most)
        if code in NOT_A_MEMBER:
            raise CommitFailed(
                f"group {membership.group_id} has given the partitions to another member. "
                "The transaction is aborted; what it read will be read again, by whoever has the partitions"
            )
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CommitFailed(
                f"group {membership.group_id}: one of these topics is not there any more: {_names(offsets)}. "
                "The transaction is aborted; what it read of others will be read again"
            )
        if code in (*FENCED, *OF_AN_ENDED_ONE):
            # The group's coordinator cannot tell who has ended it: the other one can, and then it is ProducerFenced.
            aborted = self._aborted_by_coordinator()
            self._state.fail(aborted)
            if self._state.is_in_progress:
                await self._end(is_commit=False)
            raise aborted
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


def _names(offsets: Iterable[TopicPartition]) -> str:
    return ", ".join(sorted({one.topic for one in offsets}))


def _look_at(ending: asyncio.Task[None]) -> None:
    """So that nobody complains of an error that nobody waited for."""
    if not ending.cancelled():
        ending.exception()


def _closed_inside() -> TransactionAborted:
    return TransactionAborted("the producer was closed in the middle of a transaction")


def _outside() -> RuntimeError:
    return RuntimeError("a producer with a transactional_id sends inside `with producer.transaction()`")


class Transaction:
    """Made by `Producer.transaction`. What the producer sends inside of it is part of it."""

    def __init__(self, manager: TransactionManager, flush: Callable[[], Awaitable[None]]) -> None:
        self._manager = manager
        self._flush = flush

    async def __aenter__(self) -> Self:
        """TransactionUnresolved if the transaction before has still not ended."""
        await self._manager.begin()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        if kind is None:
            await self._manager.commit(self._flush)
            return
        try:
            await self._manager.abort()
        except ClientError as trouble:
            # The error that brought us here matters more. Nothing begins before the abort is done.
            if error is not None:
                error.add_note(f"and the transaction could not be aborted: {trouble}")

    async def send_offsets(self, consumer: HasGroupOffsets | GroupOffsets) -> None:
        """What the consumer has read becomes part of the transaction: CommitFailed if it has lost its partitions."""
        given = consumer if isinstance(consumer, GroupOffsets) else consumer.group_offsets()
        await self._manager.send_offsets(given)
