"""A coordinator's log, replayed into its machine in steps of about a millisecond."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ottla.broker.events import Events
from ottla.coordinator.operation import Machine
from ottla.log.errors import CorruptLog
from ottla.records.batch import BatchHeader, CorruptBatch, check_batch, whole_batches
from ottla.records.build import read_marker
from ottla.records.codec import Record, decode_records
from ottla.records.portions import Portion, record_portions
from ottla.records.read import Batch

if TYPE_CHECKING:
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

LOADED_AT_ONCE_BYTES = 1 << 18
LOADED_IN_A_STEP = 100  # records
MOST_TOLD = 10  # records that are passed over, one by one; the rest are counted


class Replay:
    """What cannot be read, or makes no sense to the machine, is told and passed over: it must not keep all others.

    Kafka passes over records of types that it does not know, and gives up on others.
    """

    def __init__(self, partition: Partition, machine: Machine) -> None:
        self._partition = partition
        self._machine = machine
        self._passed_over = 0
        self._replayed = 0  # records

    def steps(self) -> Iterator[None]:
        """Up to the end of the log: what the leader before has committed may be above the high watermark known here.

        What is not committed yet will be, or this broker leads no more. Nobody is answered before that is known.
        """
        log, machine = self._partition.log, self._machine
        offset = log.log_start_offset
        while offset < log.end_offset:
            start = offset
            try:
                found = log.read(offset, LOADED_AT_ONCE_BYTES, log.end_offset)
            except CorruptLog as error:
                self._pass_over(offset, error)
            else:
                if found is None:
                    break
                for batch in self._sound_batches(found.read(), offset):
                    header = batch.header
                    offset = header.next_offset
                    if not header.is_control:
                        yield from self._batch(batch)
                    elif header.count:
                        machine.replay_marker(header.producer_id, read_marker(batch.bytes).is_commit)
            if offset == start:
                offset = log.segments.offset_behind(start, log.end_offset)
            yield
        if self._passed_over > MOST_TOLD:
            events.warning(
                "a coordinator passed over records", partition=self._partition.name, records=self._passed_over
            )

    def _sound_batches(self, data: bytes, start_offset: int) -> Iterator[Batch]:
        """The whole batches that reach an offset, without those whose checksum is wrong."""
        view = memoryview(data)
        with suppress(CorruptBatch):  # a length in their midst: it is told of when the next read begins there
            for position, header in whole_batches(view):
                if header.last_offset < start_offset:
                    continue
                batch = Batch(header, view[position : position + header.size])
                try:
                    check_batch(batch.bytes)
                except CorruptBatch as error:
                    self._pass_over(header.base_offset, error)
                else:
                    yield batch

    def _batch(self, batch: Batch) -> Iterator[None]:
        """A small batch may decompress to very much: memory is held for a portion of it."""
        header = batch.header
        producer_id = header.producer_id if header.is_transactional else -1
        try:
            for portion in record_portions(batch.bytes, header):
                for record in _records(header, portion):
                    self._record(record, producer_id)
                    self._replayed += 1
                    if self._replayed % LOADED_IN_A_STEP == 0:
                        yield
                if not portion.records:
                    yield
        except CorruptBatch as error:
            self._pass_over(header.base_offset, error)

    def _record(self, record: Record, producer_id: int) -> None:
        try:
            types = self._machine.record_types
            key = types.decode_key(record.key) if record.key else None
            if key is not None:
                value = None if record.value is None else types.decode_value(key, record.value)
                self._machine.replay(key, value, producer_id)
        except Exception as error:
            self._pass_over(record.offset, error)

    def _pass_over(self, offset: int, error: Exception) -> None:
        self._passed_over += 1
        if self._passed_over <= MOST_TOLD:
            events.warning(
                "a coordinator passes over a record",
                partition=self._partition.name,
                offset=offset,
                reason=f"{type(error).__name__}: {error}",
            )


def _records(header: BatchHeader, portion: Portion) -> list[Record]:
    return decode_records(portion.area, portion.records, header.base_offset, header.base_timestamp)
