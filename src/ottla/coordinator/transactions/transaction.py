"""One transactional id: its producer, the state of its transaction, and how one state follows from another.

Transitions give a new value; nothing changes in place. In version 2 of transactions (KIP-890) the epoch rises with
the end of every transaction, so that nothing that is late can be taken for a part of the next one.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, NamedTuple

from ottla.wire.messages.transaction_records import PartitionsSchema, TransactionLogValue

NO_ID = -1
NO_EPOCH = -1
NO_TIME = -1
LAST_EPOCH = 32766
"""The last epoch that a producer is given: the one above it is left for ending its transaction."""
VERSION_1 = 0  # what clients before version 2 are written down as
VERSION_2 = 2

TopicPartition = tuple[str, int]


class TransactionState(enum.IntEnum):
    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """As clients are told: PrepareCommit."""
        return self.name.title().replace("_", "")


PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
COMPLETE = frozenset({TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT})
AT_REST = COMPLETE | {TransactionState.EMPTY}

PREDECESSORS: dict[TransactionState, frozenset[TransactionState]] = {
    TransactionState.EMPTY: AT_REST,
    TransactionState.ONGOING: AT_REST | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: frozenset({TransactionState.ONGOING}),
    TransactionState.PREPARE_ABORT: AT_REST | {TransactionState.ONGOING},  # with version 2 also where nothing was added
    TransactionState.COMPLETE_COMMIT: frozenset({TransactionState.PREPARE_COMMIT}),
    TransactionState.COMPLETE_ABORT: frozenset({TransactionState.PREPARE_ABORT}),
}
"""The states from which each one can be reached. A transaction is never seen dead, nor about to be fenced."""


class Transaction(NamedTuple):
    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_EPOCH
    timeout_ms: int = 0
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    started_ms: int = NO_TIME
    updated_ms: int = NO_TIME
    version: int = VERSION_1  # of transactions, as the client that made the last step knows them
    previous_producer_id: int = NO_ID  # that of the step before
    next_producer_id: int = NO_ID  # which takes over when this transaction has ended, as the epochs have run out
    previous_epoch: int = NO_EPOCH  # of a producer that may have missed the answer with the current one

    @property
    def producer(self) -> tuple[int, int]:
        return self.producer_id, self.producer_epoch

    @property
    def is_epoch_used_up(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    @property
    def next_producer(self) -> tuple[int, int]:
        """What the client goes on with when its transaction has been prepared to end."""
        return self.producer if self.next_producer_id == NO_ID else (self.next_producer_id, 0)

    # Steps

    def initialized(self, producer: tuple[int, int], previous_epoch: int, timeout_ms: int, now_ms: int) -> Transaction:
        """A producer begins, or begins anew."""
        return self._step(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            previous_epoch=previous_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            started_ms=NO_TIME,
        )

    def joined(self, partitions: Iterable[TopicPartition], version: int, now_ms: int) -> Transaction:
        """Partitions take part, the first of them in a new transaction."""
        return self._step(
            TransactionState.ONGOING,
            now_ms,
            partitions=self.partitions.union(partitions),
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            version=version,
        )

    def prepared(self, *, is_commit: bool, version: int, now_ms: int, next_producer_id: int = NO_ID) -> Transaction:
        """It is decided how the transaction ends; its partitions are to be told."""
        rises = version >= VERSION_2
        return self._step(
            TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=self.producer_epoch + rises,
            previous_epoch=self.producer_epoch if rises else self.previous_epoch,
            next_producer_id=next_producer_id,
            started_ms=self.started_ms if self.state is TransactionState.ONGOING else now_ms,
            version=version,
        )

    def completed(self, now_ms: int) -> Transaction:
        """All partitions have been told."""
        producer_id, producer_epoch = self.next_producer
        return self._step(
            TransactionState.COMPLETE_COMMIT
            if self.state is TransactionState.PREPARE_COMMIT
            else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=NO_ID,
            partitions=frozenset(),
        )

    def _step(self, state: TransactionState, now_ms: int, **changes: Any) -> Transaction:
        assert self.state in PREDECESSORS[state], f"{self.transactional_id} cannot go from {self.state} to {state}"
        return self._replace(state=state, updated_ms=now_ms, previous_producer_id=self.producer_id, **changes)

    # As the log has it

    def to_value(self) -> TransactionLogValue:
        return TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id,
            next_producer_id=self.next_producer_id,
            producer_epoch=self.producer_epoch,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=None if self.state is TransactionState.EMPTY else _by_topic(self.partitions),
            transaction_last_update_timestamp_ms=self.updated_ms,
            transaction_start_timestamp_ms=self.started_ms,
            client_transaction_version=self.version,
        )

    @classmethod
    def from_value(cls, transactional_id: str, value: TransactionLogValue, known: Transaction | None) -> Transaction:
        """`known`: what the log said before."""
        transaction = cls(
            transactional_id,
            value.producer_id,
            value.producer_epoch,
            value.transaction_timeout_ms,
            TransactionState(value.transaction_status),
            frozenset(
                (topic.topic, index) for topic in value.transaction_partitions or () for index in topic.partition_ids
            ),
            value.transaction_start_timestamp_ms,
            value.transaction_last_update_timestamp_ms,
            value.client_transaction_version,
            value.previous_producer_id,
            value.next_producer_id,
        )
        return transaction._replace(previous_epoch=_previous_epoch(transaction, known))


def _previous_epoch(transaction: Transaction, known: Transaction | None) -> int:
    """The log does not tell it, but where the epoch rose with the end of a transaction it is the one below."""
    if transaction.state is TransactionState.EMPTY:
        return NO_EPOCH
    if transaction.state is TransactionState.ONGOING or transaction.version < VERSION_2:
        return NO_EPOCH if known is None else known.previous_epoch
    return transaction.producer_epoch - 1 if transaction.producer_epoch else LAST_EPOCH


def _by_topic(partitions: Iterable[TopicPartition]) -> list[PartitionsSchema]:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
