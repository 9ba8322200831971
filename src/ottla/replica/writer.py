"""What is appended to a partition that is led here: checked, gathered with the rest of its round, and written.

A small batch gets its offset at once and is written at the end of the round, with all others of that round.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from ottla.log.errors import LogError, OutOfOrderSequence, StorageFailed
from ottla.log.log import Appended
from ottla.log.producers import Origin
from ottla.records.batch import TRANSACTIONAL, BatchHeader
from ottla.records.large import ValidateSteps, validate_large
from ottla.records.validate import LargeBatch, Validated, validate_produce
from ottla.replica.errors import AppendRefused, NotLeader
from ottla.replica.machine import ALL
from ottla.wire.errors import ErrorCode
from ottla.wire.parts import Buffer

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

FIRST_VERSION_WITH_TRANSACTIONS_2 = 12
MOST_GATHERED_BATCH_BYTES = 1 << 16  # a larger one is written from where it was received
MOST_GATHERED_BYTES = 1 << 20

_make_appended = tuple.__new__  # half the cost of its constructor


class PartitionWriter:
    __slots__ = (
        "_gathered",
        "_gathered_headers",
        "_gathered_ms",
        "_gathered_producers",
        "_next_offset",
        "_owner",
        "most_gathered_bytes",
    )

    def __init__(self, partition: Partition) -> None:
        self._owner = weakref.ref(partition)  # a cycle would never be freed: the collector puts aside what stays
        self._gathered = bytearray()  # batches that wait for the end of the round
        self._gathered_headers: list[BatchHeader] = []
        self._gathered_producers: set[int] = set()
        self._gathered_ms = 0
        self._next_offset = 0  # behind what is gathered
        self.most_gathered_bytes = MOST_GATHERED_BYTES

    @property
    def _partition(self) -> Partition:
        partition = self._owner()
        assert partition is not None
        return partition

    @property
    def is_gathering(self) -> bool:
        return bool(self._gathered_headers)

    def discard(self) -> None:
        """Forget what was gathered."""
        self._gathered, self._gathered_headers = bytearray(), []
        self._gathered_producers.clear()

    def produce(
        self, records: Buffer | None, version: int, now_ms: int, acks: int = ALL, has_transactional_id: bool = False
    ) -> tuple[Appended, int]:
        """Check and append what a client sent; where it went, and the time it was stamped with (-1: none).

        LargeBatch where the check takes more than a moment: `validate_large` goes on with it.
        """
        partition = self._owner()
        assert partition is not None
        validated = validate_produce(
            records, partition.log.produce_settings, partition.name, version, now_ms, has_transactional_id
        )
        return self._append(partition, validated, version, now_ms, acks)

    def validate_large(self, large: LargeBatch, now_ms: int) -> ValidateSteps:
        """The check in steps, for a batch that was found to be large; `append_validated` is what is left then."""
        partition = self._partition
        return validate_large(large, partition.log.produce_settings, partition=partition.name, now_ms=now_ms)

    def append_validated(self, validated: Validated, version: int, now_ms: int, acks: int) -> tuple[Appended, int]:
        """Append a batch, or gather it if it is small: then its offset is known, and `wait` tells whether it lasts."""
        return self._append(self._partition, validated, version, now_ms, acks)

    def _append(
        self, partition: Partition, validated: Validated, version: int, now_ms: int, acks: int
    ) -> tuple[Appended, int]:
        batch, header, log_append_time = validated
        log = partition.log
        reason = partition.machine.may_append(acks)
        if reason is not None:
            raise self._refused(reason)
        is_transactional = header.attributes & TRANSACTIONAL
        producer_id = header.producer_id
        if producer_id >= 0 or log.failure is not None:
            if producer_id in self._gathered_producers:
                self.write_gathered()  # the next of its batches is checked against this one
            new_epoch_starts_at_zero = version >= FIRST_VERSION_WITH_TRANSACTIONS_2 and bool(is_transactional)
            try:
                known = log.admit(header, new_epoch_starts_at_zero=new_epoch_starts_at_zero)
            except OutOfOrderSequence as refusal:
                if partition.may_be_replaced:  # what comes before may have been written to the next leader
                    raise NotLeader(f"{partition.name} may be led elsewhere") from refusal
                raise
            if known is not None:
                return known, known.max_timestamp  # as Kafka answers, whoever stamped it
        size_bytes = len(batch)
        if size_bytes > MOST_GATHERED_BATCH_BYTES or is_transactional:  # who asks for transactions asks the log
            self.write_gathered()
            base_offset = log.write(batch, (header,), partition.leader_epoch, now_ms)
            partition.grown(size_bytes)
        else:
            if len(self._gathered) + size_bytes > self.most_gathered_bytes:
                self.write_gathered()
            headers = self._gathered_headers
            if not log.has_folder:
                log.prepare(header)  # to make many of them at the end of a round would take long
            if not headers:
                self._next_offset, self._gathered_ms = log.end_offset, now_ms
                if not partition.is_touched:
                    partition.touch()
            self._gathered += batch
            headers.append(header)
            if producer_id >= 0:
                self._gathered_producers.add(producer_id)
            base_offset = self._next_offset
            self._next_offset = base_offset + header.last_offset_delta + 1
        last_offset = base_offset + header.last_offset_delta
        return _make_appended(Appended, (base_offset, last_offset, header.max_timestamp, False)), log_append_time

    def earlier(self, header: BatchHeader) -> tuple[Appended, int] | None:
        """What became of a batch that was appended before and comes again; None if it is new."""
        if header.producer_id < 0:
            return None
        self.write_gathered()
        try:
            known = self._partition.log.admit(header)
        except LogError:
            return None
        return None if known is None else (known, known.max_timestamp)

    def write_gathered(self) -> None:
        """Write what was gathered, before anything else happens to the log. If that fails, those who wait are told."""
        headers = self._gathered_headers
        if not headers:
            return
        partition, gathered = self._partition, self._gathered
        self._gathered, self._gathered_headers = bytearray(), []
        self._gathered_producers.clear()
        try:
            partition.log.write(gathered, headers, partition.leader_epoch, self._gathered_ms)
        except LogError as failure:
            partition.acknowledgements.fail(failure, partition.log.end_offset)
        except Exception as mistake:
            partition.acknowledgements.fail(StorageFailed(f"{partition.name}: {mistake}"), partition.log.end_offset)
            raise
        else:
            partition.grown(len(gathered))

    def _refused(self, refusal: ErrorCode) -> LogError:
        partition = self._partition
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
        partition = self._partition
        refusal = partition.machine.may_append(ALL)
        if refusal is not None:
            raise self._refused(refusal)
        self.write_gathered()
        appended = partition.log.append(
            batch, header, partition.leader_epoch, now_ms, origin=origin, transaction_version=transaction_version
        )
        partition.grown(len(batch))
        return appended
