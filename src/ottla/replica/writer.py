"""What is appended to a partition that is led here: checked, gathered with the rest of its round, and written.

A small batch gets its offset at once and is written at the end of the round, with all others of that round.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from ottla.log.errors import LogError, OutOfOrderSequence, StorageFailed
from ottla.log.log import Appended, NumberedBatch, has_producer
from ottla.log.producers import Origin
from ottla.records.batch import TRANSACTIONAL, BatchHeader, read_header
from ottla.records.large import ValidateSteps, validate_large
from ottla.records.validate import LargeBatch, Validated, look_closely
from ottla.replica.errors import AppendRefused, NotLeader
from ottla.replica.machine import ALL
from ottla.wire.errors import ErrorCode
from ottla.wire.parts import Buffer

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

FIRST_VERSION_WITH_TRANSACTIONS_2 = 12
MOST_GATHERED_BATCH_BYTES = 1 << 16  # a larger one is written from where it was received
MOST_GATHERED_BYTES = 1 << 20


Placed = tuple[int, int, int]
"""Where a batch went, also one that was there before: its first offset, the offset behind it, the time it was stamped
with (-1: none)."""


class PartitionWriter:
    def __init__(self, partition: Partition) -> None:
        self._owner = weakref.ref(partition)  # a cycle would never be freed: the collector puts aside what stays
        self._gathered = bytearray()  # batches that wait for the end of the round
        self._numbered: list[NumberedBatch] = []  # those of them that have a producer
        self._gathered_producers: set[int] = set()
        self._gathered_ms = 0
        self._next_offset = 0  # behind what is gathered
        self.most_gathered_bytes = MOST_GATHERED_BYTES

    def _partition(self) -> Partition:
        partition = self._owner()
        assert partition is not None
        return partition

    @property
    def is_gathering(self) -> bool:
        return bool(self._gathered)

    def discard(self) -> None:
        """Forget what was gathered."""
        self._gathered, self._numbered = bytearray(), []
        self._gathered_producers.clear()

    def produce(
        self, records: Buffer | None, version: int, now_ms: int, acks: int = ALL, has_transactional_id: bool = False
    ) -> Placed:
        """Check and append what a client sent.

        LargeBatch where the check takes more than a moment: `validate_large` goes on with it.
        """
        partition = self._partition()
        settings = partition.log.produce_settings
        plain_check = settings.plain_check
        batch: Any = records
        count = 0 if records is None else plain_check.count(records, now_ms, has_transactional_id)
        if count > 0:  # as usual, and without a producer
            return self._append(partition, batch, None, count, -1, version, now_ms, acks)
        if count < 0:
            return self._append(partition, batch, read_header(batch), -count, -1, version, now_ms, acks)
        validated = look_closely(records, settings, partition.name, version, now_ms, has_transactional_id)
        return self.append_validated(validated, version, now_ms, acks)

    def validate_large(self, large: LargeBatch, now_ms: int) -> ValidateSteps:
        """The check in steps, for a batch that was found to be large; `append_validated` is what is left then."""
        partition = self._partition()
        return validate_large(large, partition.log.produce_settings, partition=partition.name, now_ms=now_ms)

    def append_validated(self, validated: Validated, version: int, now_ms: int, acks: int) -> Placed:
        """Append a batch that was checked, in the version that it came with."""
        batch, header, log_append_time = validated
        count = header.last_offset_delta + 1
        return self._append(self._partition(), batch, header, count, log_append_time, version, now_ms, acks)

    def _append(
        self,
        partition: Partition,
        batch: bytearray | memoryview,
        header: BatchHeader | None,
        count: int,
        log_append_time: int,
        version: int,
        now_ms: int,
        acks: int,
    ) -> Placed:
        """Append a batch, or gather it if it is small: then its offsets are known, and `wait` tells whether it lasts.

        `header`: not needed where there is no producer.
        """
        log = partition.log
        refusal = partition.machine.may_append(acks)
        if refusal is not None:
            raise self._refused(refusal)
        if log.failure is not None:
            raise log.refusal
        is_transactional = header is not None and header.attributes & TRANSACTIONAL != 0
        if header is not None and header.producer_id >= 0:
            known = self._known(partition, header, version)
            if known is not None:
                return known.base_offset, known.last_offset + 1, known.max_timestamp  # as Kafka does
        size_bytes = len(batch)
        if size_bytes > MOST_GATHERED_BATCH_BYTES or is_transactional:  # who asks for transactions asks the log
            self.write_gathered()
            numbered = (NumberedBatch(0, header),) if header is not None and has_producer(header) else ()
            base_offset = log.write(batch, numbered, partition.leader_epoch, now_ms)
            partition.grown(size_bytes)
            return base_offset, base_offset + count, log_append_time
        if len(self._gathered) + size_bytes > self.most_gathered_bytes:
            self.write_gathered()
        if not log.has_folder:
            log.prepare(header)  # to make many of them at the end of a round would take long
        if not self._gathered:
            self._begin(partition, now_ms)
        base_offset = self._next_offset
        if header is not None and header.producer_id >= 0:
            self._gathered_producers.add(header.producer_id)
            if has_producer(header):
                self._numbered.append(NumberedBatch(base_offset - log.end_offset, header))
        self._gathered += batch
        self._next_offset = base_offset + count
        return base_offset, base_offset + count, log_append_time

    def _known(self, partition: Partition, header: BatchHeader, version: int) -> Appended | None:
        """Where a batch of a producer lies that was written before; LogError where it may not be written now."""
        if header.producer_id in self._gathered_producers:
            self.write_gathered()  # the next of its batches is checked against this one
        is_transactional = bool(header.attributes & TRANSACTIONAL)
        starts_at_zero = version >= FIRST_VERSION_WITH_TRANSACTIONS_2 and is_transactional
        try:
            return partition.log.admit(header, new_epoch_starts_at_zero=starts_at_zero)
        except OutOfOrderSequence as refusal:
            if partition.may_be_replaced:  # what comes before may have been written to the next leader
                raise NotLeader(f"{partition.name} may be led elsewhere") from refusal
            raise

    def _begin(self, partition: Partition, now_ms: int) -> None:
        """The first of its round is gathered."""
        self._next_offset, self._gathered_ms = partition.log.end_offset, now_ms
        if not partition.is_touched:
            partition.touch()

    def earlier(self, header: BatchHeader) -> Placed | None:
        """What became of a batch that was appended before and comes again; None if it is new."""
        if header.producer_id < 0:
            return None
        self.write_gathered()
        try:
            known = self._partition().log.admit(header)
        except LogError:
            return None
        return None if known is None else (known.base_offset, known.last_offset + 1, known.max_timestamp)

    def write_gathered(self) -> None:
        """Write what was gathered, before anything else happens to the log. If that fails, those who wait are told."""
        gathered = self._gathered
        if not gathered:
            return
        partition, numbered = self._partition(), self._numbered
        self._gathered, self._numbered = bytearray(), []
        self._gathered_producers.clear()
        try:
            partition.log.write(gathered, numbered, partition.leader_epoch, self._gathered_ms)
        except LogError as failure:
            partition.acknowledgements.fail(failure, partition.log.end_offset)
        except Exception as mistake:
            partition.acknowledgements.fail(StorageFailed(f"{partition.name}: {mistake}"), partition.log.end_offset)
            raise
        else:
            partition.grown(len(gathered))

    def _refused(self, refusal: ErrorCode) -> LogError:
        partition = self._partition()
        if partition.is_failed:
            return partition.log.refusal
        return AppendRefused(refusal, f"{partition.name} takes no records now")

    def append(
        self,
        batch: bytearray,
        header: BatchHeader,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended:
        """Append a batch that was made here: a coordinator's records, or the end of a transaction."""
        partition = self._partition()
        refusal = partition.machine.may_append(ALL)
        if refusal is not None:
            raise self._refused(refusal)
        self.write_gathered()
        appended = partition.log.append(
            batch, header, partition.leader_epoch, now_ms, origin=origin, transaction_version=transaction_version
        )
        partition.grown(len(batch))
        return appended
