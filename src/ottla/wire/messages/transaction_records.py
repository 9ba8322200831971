"""Records of __transaction_state.

Kafka 4.3.1 writes values in version 1, which is flexible and remembers the ids before and after an epoch ran
out; before transaction.version 2 in version 0. `transaction_status`: 0 Empty, 1 Ongoing, 2 PrepareCommit,
3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead, 7 PrepareEpochFence.
"""

from __future__ import annotations

from ottla.wire.coordinator_records import RecordTypes
from ottla.wire.schema import Message, Struct, tagged
from ottla.wire.types import Int8, Int16, Int32, Int64, String


class TransactionLogKey(Message, versions="0"):
    transactional_id: String


class PartitionsSchema(Struct):
    topic: String
    partition_ids: list[Int32]


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    producer_id: Int64
    previous_producer_id: Int64 = tagged(0, "1+", -1)
    next_producer_id: Int64 = tagged(1, "1+", -1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = tagged(3, "1+", -1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = tagged(2, "1+", 0)


TRANSACTION_RECORDS = RecordTypes({0: (TransactionLogKey, TransactionLogValue)})
