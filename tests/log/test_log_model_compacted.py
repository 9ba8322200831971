"""The same random operations on a log that is compacted: whoever reads it all knows the last value of every key."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from ottla.log.compaction import Compaction, cleanable
from ottla.log.topic_config import TopicConfig
from ottla.records.build import build_batch
from ottla.records.read import Batch
from ottla.testing.slices import run_here
from tests.log.expected import ProducerState, transactions_of
from tests.log.test_log_model import KEYS, PARTS, TIMESTAMPS, LogMachine
from tests.log.writing import served_batches

Record = tuple[int, bytes | None, bytes | None, int]  # offset, key, value, timestamp


def records_of(batches: list[Batch]) -> list[Record]:
    return [
        (record.offset, record.key, record.value, record.timestamp)
        for batch in batches
        if not batch.header.is_control
        for record in batch.records()
    ]


class CompactedLogMachine(LogMachine):
    """`batches` are as they were given. What compaction has left of them is looked up in the log."""

    config = TopicConfig(
        internal_segment_bytes=700,
        index_interval_bytes=150,
        segment_ms=60,
        file_delete_delay_ms=5,
        cleanup_policy=("compact",),
        delete_retention_ms=30,
        retention_ms=-1,
    )

    def __init__(self) -> None:
        super().__init__()
        self.cleaned_up_to = 0

    @initialize()
    def begin(self) -> None:
        """Something is flushed: before that, what a crash takes and what compaction left out look alike."""
        self.open()
        self.append([b"a"], 1000, False)
        self.flush(is_saved=True)

    @rule(keys=KEYS, timestamp=TIMESTAMPS)
    def delete(self, keys: list[bytes], timestamp: int) -> None:
        self.take(build_batch([None] * len(keys), keys=keys, timestamp=timestamp))

    @rule(
        is_all_ready=st.booleans(),
        slice_bytes=st.sampled_from([1, 500, 1 << 20]),
        map_bytes=st.sampled_from([1, 100_000]),
    )
    def compact(self, is_all_ready: bool, slice_bytes: int, map_bytes: int) -> None:
        if is_all_ready:
            self.roll()
            self.flush(is_saved=True)
            self.advance_high_watermark(1)
        self.save_recovery_point()
        work = cleanable(self.log, self.cleaned_up_to, self.now_ms)
        compaction = Compaction(self.log, work, self.now_ms, map_bytes=map_bytes)
        run_here(compaction.run(slice_bytes))
        self.cleaned_up_to = compaction.cleaned_up_to

    @rule(part=PARTS)
    def truncate(self, part: float) -> None:
        """Never below the high watermark, nor into what was compacted: those records are decided."""
        offset = self.high_watermark + round((self.end_offset - self.high_watermark) * part)
        kept = [batch for batch in self.batches if batch.header.next_offset <= offset]
        end_offset = kept[-1].header.next_offset if kept else 0
        if end_offset >= max(self.cleaned_up_to, self.log.segments[0].base_offset + 1):
            self.log.truncate_to(offset, self.now_ms)
            self.cut(kept)
            self.rebuilt_from.add(self.log.log_start_offset)

    def left(self) -> list[Batch]:
        return served_batches(self.log)

    # What must be true

    def check_read(self, offset: int, bound: int, max_bytes: int, whole_batch: bool) -> bytes:
        """Nothing but what was given, in order and within the bounds."""
        found = self.log.read(offset, max_bytes, bound, whole_batch=whole_batch)
        return b"" if found is None else found.read()

    def everything_is_read(self) -> None:
        """Not byte for byte: compaction writes batches anew."""

    @invariant()
    def contents_are_right(self) -> None:
        left, given = records_of(self.left()), records_of(self.batches)
        assert [record[0] for record in left] == sorted({record[0] for record in left})
        assert set(left) <= set(given)
        assert self.last_values(left) == self.last_values(given)

    def last_values(self, records: list[Record]) -> dict[bytes | None, bytes]:
        """What a reader of all decided records knows in the end."""
        hidden = self.undecided_or_aborted()
        values = {key: value for offset, key, value, _ in records if offset >= self.log_start and offset not in hidden}
        return {key: value for key, value in values.items() if value is not None}

    def undecided_or_aborted(self) -> set[int]:
        transactions = transactions_of(self.batches)
        ends = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in transactions.aborted]
        for producer_id, state in transactions.producers.items():
            if state.transaction_start is not None:
                ends.append((producer_id, state.transaction_start, self.end_offset))
        return {
            offset
            for producer_id, first_offset, end_offset in ends
            for batch in self.data_of_given(producer_id, first_offset, end_offset)
            for offset in range(batch.header.base_offset, batch.header.next_offset)
        }

    def data_of_given(self, producer_id: int, first_offset: int, end_offset: int) -> list[Batch]:
        return super().data_of(producer_id, first_offset, end_offset)

    def data_of(self, producer_id: int, first_offset: int, end_offset: int) -> list[Batch]:
        """Only what still has records must be known to be aborted."""
        given = super().data_of(producer_id, first_offset, end_offset)
        left = {batch.header.last_offset for batch in self.left() if batch.header.count}
        return [batch for batch in given if batch.header.last_offset in left]

    @invariant()
    def epochs_are_right(self) -> None:
        for batch in self.left():
            known = self.log.epochs.epoch_at(max(batch.header.base_offset, self.log_start))
            assert known in (batch.header.leader_epoch, -1)
            assert known != -1 or batch.header.base_offset < self.furthest_start

    def producers_from(self, start: int) -> dict[int, ProducerState]:
        return transactions_of(self.left() if start == self.log_start else self.batches).producers

    @invariant()
    def producers_are_right(self) -> None:
        """They are as of all batches, or as of those that are left; when they last wrote may be forgotten."""
        states = [
            transactions_of(batch for batch in self.batches if batch.header.last_offset >= start).producers
            for start in {0, *self.rebuilt_from}
        ]
        states.append(transactions_of(self.left()).producers)
        for producer_id, producer in self.log.producers.by_id.items():
            possible = [timeless(known[producer_id]) for known in states if producer_id in known]
            assert timeless(ProducerState.of(producer)) in possible


def timeless(state: ProducerState) -> ProducerState:
    return replace(state, last_timestamp=-1, coordinator_epoch=-1)


TestCompactedLog = CompactedLogMachine.TestCase
TestCompactedLog.settings = settings(max_examples=100, stateful_step_count=40)
