"""What a log must know, worked out anew and plainly from the batches in it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ottla.log.aborted import AbortedTransaction
from ottla.log.log import Log
from ottla.log.producers import Producer
from ottla.log.scan import SegmentScan
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader
from ottla.records.build import read_marker
from ottla.records.read import Batch


@dataclass(frozen=True)
class ProducerState:
    epoch: int
    last_sequence: int = -1
    last_offset: int = -1
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    transaction_start: int | None = None

    @classmethod
    def of(cls, producer: Producer) -> "ProducerState":
        return cls(
            producer.epoch,
            producer.last_sequence,
            producer.last_offset,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.transaction_start,
        )


@dataclass
class Transactions:
    """Producers and transactions, followed batch by batch."""

    producers: dict[int, ProducerState] = field(default_factory=dict)
    aborted: list[AbortedTransaction] = field(default_factory=list)

    def follow(self, batch: Batch) -> None:
        header = batch.header
        # Compaction empties the marker of a transaction of which nothing is left.
        if header.producer_id < 0 or (header.is_control and not header.count):
            return
        state = self.producers.get(header.producer_id, ProducerState(header.producer_epoch))
        if state.epoch != header.producer_epoch:
            state = replace(state, epoch=header.producer_epoch, last_sequence=-1, last_offset=-1)
        state = replace(state, last_timestamp=header.max_timestamp)
        if header.is_control:
            state = self._end(state, batch)
        else:
            start = state.transaction_start
            if start is None and header.is_transactional and header.count:
                start = header.base_offset
            state = replace(
                state,
                last_sequence=header.last_sequence,
                last_offset=header.last_offset,
                transaction_start=start,
            )
        self.producers[header.producer_id] = state

    def _end(self, state: ProducerState, batch: Batch) -> ProducerState:
        marker = read_marker(batch.bytes)
        start = state.transaction_start
        ended = replace(state, transaction_start=None, coordinator_epoch=marker.coordinator_epoch)
        self.producers[batch.header.producer_id] = ended
        if start is not None and not marker.is_commit:
            offset = batch.header.base_offset
            stable = min(self.open_starts(), default=offset + 1)
            self.aborted.append(AbortedTransaction(batch.header.producer_id, start, offset, stable))
        return ended

    def open_starts(self) -> list[int]:
        return [s.transaction_start for s in self.producers.values() if s.transaction_start is not None]


def transactions_of(batches: Iterable[Batch]) -> Transactions:
    transactions = Transactions()
    for batch in batches:
        transactions.follow(batch)
    return transactions


def epochs_of(batches: Iterable[Batch], log_start_offset: int = 0) -> list[tuple[int, int]]:
    """Each leader epoch of the batches, with the offset it began with as far as the log goes."""
    epochs: list[tuple[int, int]] = []
    for batch in batches:
        header = batch.header
        if header.last_offset >= log_start_offset and (not epochs or header.leader_epoch != epochs[-1][0]):
            epochs.append((header.leader_epoch, max(header.base_offset, log_start_offset)))
    return epochs


def check_segments(log: Log) -> None:
    """Every segment is sound, they follow on each other, and their indexes tell the truth."""
    next_offset = log.segments[0].base_offset
    for segment in log.segments:
        assert segment.base_offset >= next_offset
        scan = SegmentScan(segment, next_offset=next_offset)
        placed = [(position, header) for position, header, _ in scan]
        assert scan.fault is None
        assert scan.position == segment.size_bytes
        if segment.size_bytes:  # an empty one may have no file
            assert segment.file.size_bytes == segment.size_bytes
        next_offset = max(scan.next_offset, next_offset)
        check_indexes(segment, placed)
    assert next_offset == log.end_offset


def check_indexes(segment: Segment, placed: list[tuple[int, BatchHeader]]) -> None:
    last_offset_at = {position: header.last_offset for position, header in placed}
    index = segment.offset_index
    entries = [index.raw_entry(number) for number in range(len(index))]
    assert entries == sorted(set(entries))
    for relative_offset, position in entries:
        assert last_offset_at[position] == segment.base_offset + relative_offset
    times = segment.time_index
    time_entries = [times.raw_entry(number) for number in range(len(times))]
    assert time_entries == sorted(set(time_entries))
    largest: dict[int, int] = {}
    so_far = -1
    for _, header in placed:
        so_far = max(so_far, header.max_timestamp)
        largest[header.last_offset] = so_far
    for timestamp, relative_offset in time_entries:
        assert largest[segment.base_offset + relative_offset] == timestamp
    assert segment.max_timestamp == so_far
