"""The transactional ids of one partition of __transaction_state.

Answers are plain values, which whoever asked shapes: the same question comes from several requests, and from within
the broker. What a transaction decided is in the log before anybody hears of it, so it is decided once.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.coordinator.operation import Markers, Operation, Reply, Work
from ottla.coordinator.transactions.ending import Ending, decide_ending
from ottla.coordinator.transactions.producer_ids import NoProducerId
from ottla.coordinator.transactions.transaction import (
    AT_REST,
    LAST_EPOCH,
    NO_EPOCH,
    NO_ID,
    PREPARED,
    VERSION_2,
    TopicPartition,
    Transaction,
    TransactionState,
)
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transaction_records import TRANSACTION_RECORDS, TransactionLogKey, TransactionLogValue
from ottla.wire.schema import Message

RECORD_VERSION = 1
ABORT_TIMER = "abort what takes too long"
REMOVAL_TIMER = "remove ids that nobody uses"
LOOKED_AT_ONCE = 100  # transactions, where it concerns all of them

PartitionCodes = dict[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """They may change at any time, so machines ask whenever they need one."""

    max_timeout_ms: int = 900_000
    abort_interval_ms: int = 10_000
    """How often transactions that take too long are looked for."""
    id_expiration_ms: int = 604_800_000
    removal_interval_ms: int = 3_600_000
    """How often transactional ids that nobody uses are looked for."""


class Identity(NamedTuple):
    """The answer to a producer that begins or ends a transaction: the id and epoch to go on with."""

    code: ErrorCode
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH


class TransactionMachine:
    record_types = TRANSACTION_RECORDS

    def __init__(
        self, coordinator_epoch: int, new_producer_id: Callable[[], int], settings: Callable[[], TransactionSettings]
    ) -> None:
        """`new_producer_id` may raise NoProducerId."""
        self.transactions: dict[str, Transaction] = {}
        self._previous_epochs: dict[str, int] = {}  # of those whose record is about to be replayed
        self._begun_ms: dict[str, int] = {}  # when those that are open began, by a clock that nobody sets
        self._coordinator_epoch = coordinator_epoch
        self._new_producer_id = new_producer_id
        self._settings = settings

    # Replay

    def replay(self, key: Message, value: Message | None, producer_id: int) -> None:
        assert isinstance(key, TransactionLogKey)
        known = self.transactions.get(key.transactional_id)
        if isinstance(value, TransactionLogValue):
            transaction = Transaction.from_value(key.transactional_id, value, known)
            previous_epoch = self._previous_epochs.pop(key.transactional_id, None)
            if previous_epoch is not None:
                transaction = transaction._replace(previous_epoch=previous_epoch)
            self.transactions[key.transactional_id] = transaction
        elif known is not None:
            del self.transactions[key.transactional_id]

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """No transaction writes here."""

    def loaded(self, operation: Operation) -> None:
        """Go on with what was decided before; the markers of what is decided from now on are sent then."""
        operation.go_on_with(self._go_on_with_decided(list(self.transactions.values())))
        operation.set_timer(ABORT_TIMER, self._settings().abort_interval_ms)
        operation.set_timer(REMOVAL_TIMER, self._settings().removal_interval_ms)

    def _go_on_with_decided(self, loaded: list[Transaction]) -> Work:
        for start in range(0, len(loaded), LOOKED_AT_ONCE):
            yield functools.partial(self._send_decided, loaded[start : start + LOOKED_AT_ONCE])

    def _send_decided(self, loaded: list[Transaction], operation: Operation) -> None:
        """Markers that are sent twice could end the next transaction."""
        for transaction in loaded:
            if transaction.state is TransactionState.ONGOING:
                # Only the log and the clock can tell how long it has been open, and that may have been set since.
                open_ms = max(operation.now_ms - transaction.started_ms, 0)
                self._begun_ms.setdefault(transaction.transactional_id, operation.steady_ms - open_ms)
            if transaction.state in PREPARED and self.transactions.get(transaction.transactional_id) is transaction:
                self._send_markers(operation, transaction)

    def _each_some(self, event: Callable[[Operation, list[Transaction]], None]) -> Work:
        """An event for all transactions, some at a time: each as it is then, if it is still there."""
        names = list(self.transactions)
        for start in range(0, len(names), LOOKED_AT_ONCE):
            found = map(self.transactions.get, names[start : start + LOOKED_AT_ONCE])
            some = [transaction for transaction in found if transaction is not None]
            yield lambda operation, some=some: event(operation, some)  # type: ignore[misc]

    def pending_replies(self) -> list[Reply]:
        return []

    # Beginning

    def init_producer_id(
        self,
        operation: Operation,
        reply: Reply,
        transactional_id: str,
        timeout_ms: int,
        expected: tuple[int, int] | None = None,
    ) -> None:
        """Give a producer its id and epoch. `expected`: those it has, if it goes on after an error (KIP-360)."""
        try:
            answer = self._initialize(operation, transactional_id, timeout_ms, expected)
        except NoProducerId as refusal:
            answer = Identity(refusal.code)
        operation.answer(reply, answer)

    def _initialize(
        self, operation: Operation, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None
    ) -> Identity:
        if not transactional_id:
            return Identity(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._settings().max_timeout_ms:
            return Identity(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(transactional_id, self._new_producer_id())
        elif transaction.state in PREPARED:
            return Identity(ErrorCode.CONCURRENT_TRANSACTIONS)  # until its partitions have been told
        elif expected is not None and not _may_go_on(transaction, expected):
            return Identity(ErrorCode.PRODUCER_FENCED)
        if transaction.state is TransactionState.ONGOING:
            self._abort(operation, transaction)
            return Identity(ErrorCode.CONCURRENT_TRANSACTIONS)
        given = self._next_producer(transaction, expected)
        if given is None:
            return Identity(ErrorCode.PRODUCER_FENCED)
        producer, previous_epoch = given
        initialized = transaction.initialized(producer, previous_epoch, timeout_ms, operation.now_ms)
        # The log cannot tell the epoch before: a coordinator that takes over fences who has only that.
        self._previous_epochs[transactional_id] = previous_epoch
        self._write(operation, initialized)
        return Identity(ErrorCode.NONE, *producer)

    def _next_producer(
        self, transaction: Transaction, expected: tuple[int, int] | None
    ) -> tuple[tuple[int, int], int] | None:
        """Id and epoch for the producer that asks, and the epoch it had; None if another one has come since."""
        epoch = transaction.producer_epoch
        previous_epoch = NO_EPOCH if expected is None else epoch
        if expected is not None and epoch not in (NO_EPOCH, expected[1]):
            is_repeated = expected[1] == transaction.previous_epoch
            return (transaction.producer, transaction.previous_epoch) if is_repeated else None
        if transaction.is_epoch_used_up:
            return (self._new_producer_id(), 0), previous_epoch
        return (transaction.producer_id, epoch + 1), previous_epoch

    # Taking part

    def add_partitions(
        self,
        operation: Operation,
        reply: Reply,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
        version: int,
    ) -> None:
        """Let partitions take part, in a new transaction if none is open; the answer has a code for each."""
        found = self._find(transactional_id, producer)
        if isinstance(found, ErrorCode):
            operation.answer(reply, dict.fromkeys(partitions, found))
            return
        if found.state is not TransactionState.ONGOING:
            self._begun_ms[transactional_id] = operation.steady_ms
        if found.state is not TransactionState.ONGOING or not found.partitions.issuperset(partitions):
            self._write(operation, found.joined(partitions, version, operation.now_ms))
        operation.answer(reply, dict.fromkeys(partitions, ErrorCode.NONE))

    def verify_partitions(
        self,
        operation: Operation,
        reply: Reply,
        transactional_id: str,
        producer: tuple[int, int],
        partitions: Collection[TopicPartition],
    ) -> None:
        """Tell which partitions take part, without adding any."""
        found = self._find(transactional_id, producer)
        if isinstance(found, ErrorCode):
            codes: PartitionCodes = dict.fromkeys(partitions, found)
        else:
            codes = {
                partition: ErrorCode.NONE if partition in found.partitions else ErrorCode.TRANSACTION_ABORTABLE
                for partition in partitions
            }
        operation.answer(reply, codes)

    def _find(self, transactional_id: str, producer: tuple[int, int]) -> Transaction | ErrorCode:
        """The transaction that a producer may write in, or what keeps it from that."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if transaction.state in PREPARED:
            # First of all: who was told its next id and epoch may come before they are in force.
            return ErrorCode.CONCURRENT_TRANSACTIONS
        if producer[0] != transaction.producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING
        if producer[1] != transaction.producer_epoch:
            return ErrorCode.PRODUCER_FENCED
        return transaction

    # Ending

    def end(
        self,
        operation: Operation,
        reply: Reply,
        transactional_id: str,
        producer: tuple[int, int],
        *,
        is_commit: bool,
        version: int,
    ) -> None:
        """Commit or abort; answered when that is decided, before the partitions have been told."""
        try:
            answer = self._end(operation, transactional_id, producer, version, is_commit=is_commit)
        except NoProducerId as refusal:
            answer = Identity(refusal.code)
        operation.answer(reply, answer)

    def _end(
        self, operation: Operation, transactional_id: str, producer: tuple[int, int], version: int, *, is_commit: bool
    ) -> Identity:
        if not transactional_id:
            return Identity(ErrorCode.INVALID_REQUEST)
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return Identity(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        ending = decide_ending(transaction, producer, version, is_commit=is_commit)
        match ending:
            case Ending.PREPARE:
                transaction = self._prepare(operation, transaction, version, is_commit=is_commit)
            case Ending.DONE:
                pass
            case Ending.WAIT:
                return Identity(ErrorCode.CONCURRENT_TRANSACTIONS)
            case Ending.WRONG:
                return Identity(ErrorCode.INVALID_TXN_STATE)
            case _:
                return Identity(ending)
        return Identity(ErrorCode.NONE, *(transaction.next_producer if version >= VERSION_2 else ()))

    def _prepare(self, operation: Operation, transaction: Transaction, version: int, *, is_commit: bool) -> Transaction:
        needs_id = version >= VERSION_2 and transaction.is_epoch_used_up
        prepared = transaction.prepared(
            is_commit=is_commit,
            version=version,
            now_ms=operation.now_ms,
            next_producer_id=self._new_producer_id() if needs_id else NO_ID,
        )
        self._begun_ms.pop(transaction.transactional_id, None)
        self._write(operation, prepared)
        self._send_markers(operation, prepared)
        return prepared

    def _abort(self, operation: Operation, transaction: Transaction) -> None:
        """End it in the coordinator's own name, which fences the producer, whatever version it knows."""
        self._prepare(operation, transaction, VERSION_2, is_commit=False)

    def _send_markers(self, operation: Operation, transaction: Transaction) -> None:
        operation.send_markers(
            Markers(
                transaction.transactional_id,
                *transaction.producer,
                transaction.state is TransactionState.PREPARE_COMMIT,
                self._coordinator_epoch,
                sorted(transaction.partitions),
                transaction.version,
            )
        )

    def markers_written(self, operation: Operation, transactional_id: str, producer: tuple[int, int]) -> None:
        """All partitions of a transaction have been told of its end."""
        transaction = self.transactions.get(transactional_id)
        if transaction is not None and transaction.state in PREPARED and transaction.producer == producer:
            self._write(operation, transaction.completed(operation.now_ms))

    # Time

    def expired(self, operation: Operation, timer: Hashable) -> None:
        settings = self._settings()
        if timer == ABORT_TIMER:
            operation.go_on_with(self._each_some(self._abort_late))
            operation.set_timer(ABORT_TIMER, settings.abort_interval_ms)
        else:
            operation.go_on_with(self._each_some(self._remove_unused))
            operation.set_timer(REMOVAL_TIMER, settings.removal_interval_ms)

    def _abort_late(self, operation: Operation, transactions: list[Transaction]) -> None:
        for transaction in transactions:
            if transaction.state is not TransactionState.ONGOING:
                continue
            begun_ms = self._begun_ms.setdefault(transaction.transactional_id, operation.steady_ms)
            if begun_ms + transaction.timeout_ms <= operation.steady_ms:
                try:
                    self._abort(operation, transaction)
                except NoProducerId:
                    return  # the next time will do

    def _remove_unused(self, operation: Operation, transactions: list[Transaction]) -> None:
        now_ms, expiration_ms = operation.aging_ms, self._settings().id_expiration_ms
        for transaction in transactions:
            if transaction.state in AT_REST and transaction.updated_ms + expiration_ms <= now_ms:
                operation.write(TransactionLogKey(transactional_id=transaction.transactional_id), None)

    @staticmethod
    def _write(operation: Operation, transaction: Transaction) -> None:
        key = TransactionLogKey(transactional_id=transaction.transactional_id)
        operation.write(key, transaction.to_value(), RECORD_VERSION)


def _may_go_on(transaction: Transaction, expected: tuple[int, int]) -> bool:
    """Whether a producer that names its id is the one of this transaction, or was when the epochs ran out."""
    producer_id, producer_epoch = expected
    return producer_id == transaction.producer_id or (
        producer_id == transaction.previous_producer_id and producer_epoch >= LAST_EPOCH
    )
