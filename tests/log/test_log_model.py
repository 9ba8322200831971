"""Random operations on a log, held against a list of batches after every step."""

from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.log.errors import OutOfOrderSequence
from ottla.log.owner import LogOwner
from ottla.log.recovery import open_log
from ottla.log.retention import apply_retention
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import check_batch, read_header
from ottla.records.build import BatchOptions, ControlMarker, build_batch, build_marker
from ottla.records.codec import stamp_batches
from ottla.records.read import Batch
from ottla.testing.files import SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY, Loss, RandomLoss
from tests.log.expected import ProducerState, check_segments, epochs_of, transactions_of
from tests.log.writing import FOLDER, append_batch

PRODUCER_IDS = st.sampled_from([1, 2, 3])
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c"]), min_size=1, max_size=3)
TIMESTAMPS = st.integers(1000, 1100)
PARTS = st.floats(0, 1)
SEEDS = st.integers(0, 1 << 30)

PLAIN = TopicConfig(
    internal_segment_bytes=700, index_interval_bytes=150, retention_ms=-1, segment_ms=60, file_delete_delay_ms=5
)


class _SavesRecoveryPoint(LogOwner):
    def __init__(self, model: "LogMachine") -> None:
        self._model = model

    def before_truncation(self, offset: int) -> None:
        self._model.save_recovery_point()


class LogMachine(RuleBasedStateMachine):
    """What a broker does to a log, with the little that it keeps beside it: where the log is on disk, and its start.

    `batches` are all that the log took and did not truncate, also those it has let go of at its start.
    """

    config = PLAIN

    def __init__(self) -> None:
        super().__init__()
        self.files = SimulatedFiles()
        self.files.make_folder(FOLDER.rpartition("/")[0])
        self.files.sync_folder("")
        self.batches: list[Batch] = []
        self.end_offset = 0
        self.flushed = 0
        self.log_start = 0
        self.furthest_start = 0
        self.high_watermark = 0
        self.leader_epoch = 0
        self.saved_recovery_point = 0
        self.saved_log_start = 0
        self.rebuilt_from: set[int] = set()  # where the producers may have been found again from
        self.count = 0
        self.now_ms = 0

    @initialize()
    def begin(self) -> None:
        self.open()

    def open(self, clean: bool = False) -> None:
        self.log = open_log(
            self.files,
            FOLDER,
            self.config,
            now_ms=self.now_ms,
            clean=clean,
            recovery_point=self.saved_recovery_point,
            log_start_offset=self.saved_log_start,
        )
        self.log.owner = _SavesRecoveryPoint(self)
        start = self.log.log_start_offset
        self.rebuilt_from.add(start)
        # A scan begins with a segment, which may begin before the log does.
        self.rebuilt_from.update(segment.base_offset for segment in self.log.segments if segment.base_offset < start)

    def save_recovery_point(self) -> None:
        self.saved_recovery_point = self.log.recovery_point

    # Writing

    @rule(keys=KEYS, timestamp=TIMESTAMPS, is_new_epoch=st.booleans())
    def append(self, keys: list[bytes], timestamp: int, is_new_epoch: bool) -> None:
        self.leader_epoch += is_new_epoch
        self.take(self.data(keys, timestamp))

    @rule(producer_id=PRODUCER_IDS, keys=KEYS, timestamp=TIMESTAMPS, begins=st.booleans(), bumps=st.booleans())
    def append_in_sequence(
        self, producer_id: int, keys: list[bytes], timestamp: int, begins: bool, bumps: bool
    ) -> None:
        known = self.log.producers.by_id.get(producer_id)
        is_open = known is not None and known.transaction_start is not None
        epoch = 0 if known is None else known.epoch + (bumps and not is_open)
        is_next = known is not None and epoch == known.epoch and bool(known.batches)
        options: BatchOptions = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "base_sequence": known.last_sequence + 1 if is_next and known else 0,
            "is_transactional": is_open or begins,
        }
        self.take(self.data(keys, timestamp, **options))

    @rule(producer_id=PRODUCER_IDS, is_commit=st.booleans(), timestamp=TIMESTAMPS)
    def end_transaction(self, producer_id: int, is_commit: bool, timestamp: int) -> None:
        known = self.log.producers.by_id.get(producer_id)
        epoch = 0 if known is None else known.epoch
        marker = ControlMarker(is_commit, coordinator_epoch=4)
        self.take(build_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=timestamp))

    def data(self, keys: list[bytes], timestamp: int, **options: Any) -> bytearray:
        self.count += 1
        values = [b"%d of %d" % (number, self.count) for number in range(len(keys))]
        return build_batch(values, keys=keys, timestamp=timestamp, **options)

    def take(self, batch: bytearray) -> None:
        appended = append_batch(self.log, batch, epoch=self.leader_epoch, now_ms=self.now_ms)
        header = read_header(batch)
        assert (appended.base_offset, appended.duplicate) == (self.end_offset, False)
        assert (header.base_offset, header.leader_epoch) == (self.end_offset, self.leader_epoch)
        self.note(batch)

    def note(self, batch: bytearray) -> None:
        self.batches.append(Batch(read_header(batch), memoryview(bytes(batch))))
        self.end_offset = self.batches[-1].header.next_offset

    @rule(producer_id=PRODUCER_IDS)
    def repeat_the_last_batch(self, producer_id: int) -> None:
        known = self.log.producers.by_id.get(producer_id)
        if known is not None and known.batches:
            [batch] = [batch for batch in self.batches if batch.header.last_offset == known.last_offset]
            appended = append_batch(self.log, bytearray(batch.bytes), epoch=self.leader_epoch)
            assert appended.duplicate
            assert appended.base_offset == batch.header.base_offset

    @rule(producer_id=PRODUCER_IDS, gap=st.integers(1, 5))
    def skip_a_sequence(self, producer_id: int, gap: int) -> None:
        known = self.log.producers.by_id.get(producer_id)
        if known is not None and known.batches:
            sequence = known.last_sequence + 1 + gap
            batch = self.data([b"a"], 1000, producer_id=producer_id, producer_epoch=known.epoch, base_sequence=sequence)
            try:
                append_batch(self.log, batch, epoch=self.leader_epoch)
            except OutOfOrderSequence:
                return
            raise AssertionError("a gap in the sequence was taken")

    @rule(count=st.integers(1, 3), timestamp=TIMESTAMPS, cut_bytes=st.integers(0, 200))
    def copy_from_a_leader(self, count: int, timestamp: int, cut_bytes: int) -> None:
        """Several batches at once, the last one cut."""
        records, whole, offset = bytearray(), [], self.end_offset
        for _ in range(count):
            batch = self.data([b"a", b"b"], timestamp)
            stamp_batches(batch, offset, self.leader_epoch)
            records += batch
            whole.append(batch)
            offset += 2
        left = len(records) - cut_bytes
        if left < len(whole[0]):
            left = len(whole[0])
        taken_bytes = self.log.append_replicated(memoryview(records)[:left], self.now_ms)
        for batch in whole:
            if taken_bytes >= len(batch):
                taken_bytes -= len(batch)
                self.note(batch)
        assert taken_bytes == 0

    # Moving on

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now_ms)

    @rule(is_saved=st.booleans())
    def flush(self, is_saved: bool) -> None:
        self.log.flush(self.now_ms)
        self.flushed = self.end_offset
        assert self.log.recovery_point == self.end_offset
        if is_saved:
            self.save_recovery_point()

    @rule(is_saved=st.booleans(), is_killed=st.booleans())
    def flush_so_that_recovery_can_begin_there(self, is_saved: bool, is_killed: bool) -> None:
        flush = self.log.flusher.begin_resumable()
        if flush is None:
            return
        if is_killed:
            self.kill_and_open()
            return
        flush.run()
        self.log.flusher.end(flush, self.now_ms)
        self.flushed = self.end_offset
        assert self.log.recovery_point == self.end_offset
        if is_saved:
            self.save_recovery_point()

    @rule(part=PARTS)
    def advance_high_watermark(self, part: float) -> None:
        self.high_watermark += round((self.end_offset - self.high_watermark) * part)
        self.log.advance_high_watermark(self.high_watermark)

    @rule(part=PARTS, is_saved=st.booleans())
    def advance_log_start(self, part: float, is_saved: bool) -> None:
        self.log_start += round((self.high_watermark - self.log_start) * part)
        self.log.advance_log_start(self.log_start)
        self.furthest_start = max(self.furthest_start, self.log_start)
        if is_saved:
            self.saved_log_start = self.log_start

    @rule(kept_bytes=st.sampled_from([-1, 500, 1500]))
    def retain(self, kept_bytes: int) -> None:
        """What lies before the start of the log goes, and what is too much; nothing that is not replicated."""
        self.log.reconfigure(replace(self.config, retention_bytes=kept_bytes))
        size_bytes = self.log.size_bytes
        apply_retention(self.log, self.now_ms)
        self.log.reconfigure(self.config)
        first = self.log.segments[0].base_offset
        assert first <= max(self.log_start, self.high_watermark)
        if first > self.log_start:
            assert kept_bytes <= self.log.size_bytes < size_bytes
            self.log_start = first
            self.furthest_start = max(self.furthest_start, first)

    @rule(count=st.integers(1, 3))
    def remove_first(self, count: int) -> None:
        ends = [*(segment.base_offset for segment in self.log.segments[1:]), self.end_offset]
        count = min(count, sum(end <= self.high_watermark for end in ends))
        if count and (count < len(ends) or self.log.active.size_bytes):
            self.log.remove_first(count, self.now_ms)
            self.log_start = max(self.log_start, ends[count - 1])
            self.furthest_start = max(self.furthest_start, self.log_start)

    @rule(milliseconds=st.integers(1, 20))
    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        for path in self.log.segments.due_removals(self.now_ms):
            self.files.remove(path)

    @rule(part=PARTS)
    def truncate(self, part: float) -> None:
        first = self.log.segments[0].base_offset
        offset = first + round((self.end_offset - first) * part)
        self.log.truncate_to(offset, self.now_ms)
        self.cut([batch for batch in self.batches if batch.header.next_offset <= offset], first)
        self.rebuilt_from.add(self.log.log_start_offset)
        self.saved_log_start = min(self.saved_log_start, self.log_start)

    @rule(distance=st.integers(0, 3))
    def truncate_fully(self, distance: int) -> None:
        self.log.truncate_fully(self.end_offset + distance, self.now_ms)
        self.lose_everything(self.end_offset + distance)
        self.saved_log_start = self.log_start

    def cut(self, batches: list[Batch], least: int = 0) -> None:
        self.batches = batches
        end_offset = batches[-1].header.next_offset if batches else least
        self.end_offset = max(end_offset, least)
        self.flushed = min(self.flushed, self.end_offset)
        self.log_start = min(self.log_start, self.end_offset)
        self.high_watermark = min(self.high_watermark, self.end_offset)

    def lose_everything(self, offset: int) -> None:
        self.batches = []
        self.end_offset = self.log_start = self.flushed = offset
        self.furthest_start = max(self.furthest_start, offset)
        self.high_watermark = min(max(self.high_watermark, offset), offset)
        self.rebuilt_from = {offset}

    # Ending and opening again

    @rule()
    def close_and_open(self) -> None:
        self.log.close(self.now_ms)
        self.saved_recovery_point, self.saved_log_start = self.log.recovery_point, self.log.log_start_offset
        self.flushed = self.end_offset
        self.files.kill()
        self.open(clean=True)
        assert self.log.end_offset == self.end_offset
        self.settle()

    @rule()
    def kill_and_open(self) -> None:
        self.files.kill()
        self.open()
        assert self.log.end_offset == self.end_offset
        self.settle()

    @rule(seed=SEEDS)
    def lose_power_at_random(self, seed: int) -> None:
        self.lose_power(RandomLoss(Random(seed)))

    @rule()
    def lose_all_that_was_not_synced(self) -> None:
        self.lose_power(SYNCED_ONLY)

    def lose_power(self, loss: Loss) -> None:
        self.files.crash(loss)
        self.open()
        end_offset = self.log.end_offset
        assert self.flushed <= end_offset <= max(self.end_offset, self.saved_log_start)
        self.cut([batch for batch in self.batches if batch.header.next_offset <= end_offset], end_offset)
        self.settle()

    def settle(self) -> None:
        """A log starts where it was last saved to start, or where its oldest segment does; replicas know the rest."""
        start = self.log.log_start_offset
        assert self.saved_log_start <= start <= max(self.log_start, self.saved_log_start)
        self.log_start = start
        self.high_watermark = min(max(self.high_watermark, start), self.end_offset)
        self.log.advance_high_watermark(self.high_watermark)

    # What must be true

    @invariant()
    def bounds_are_right(self) -> None:
        log = self.log
        assert (log.log_start_offset, log.end_offset) == (self.log_start, self.end_offset)
        assert log.high_watermark == max(self.high_watermark, self.log_start)
        self.high_watermark = log.high_watermark
        assert log.recovery_point <= log.end_offset
        assert log.failure is None

    @invariant()
    def segments_and_indexes_are_sound(self) -> None:
        check_segments(self.log)

    @rule(part=PARTS, bound_part=PARTS, max_bytes=st.integers(0, 1000), whole_batch=st.booleans())
    def read(self, part: float, bound_part: float, max_bytes: int, whole_batch: bool) -> None:
        offset = self.log_start + round((self.end_offset - self.log_start) * part)
        bound = self.log_start + round((self.end_offset - self.log_start) * bound_part)
        self.check_read(offset, bound, max_bytes, whole_batch)

    @invariant()
    def everything_is_read(self) -> None:
        offset = self.log_start
        while offset < self.end_offset:
            data = self.check_read(offset, self.end_offset, 1000, True)
            position = 0
            while len(data) - position >= 61 and read_header(data, position).size <= len(data) - position:
                header = check_batch(data, position)
                position += header.size
                offset = header.next_offset

    def check_read(self, offset: int, bound: int, max_bytes: int, whole_batch: bool) -> bytes:
        found = self.log.read(offset, max_bytes, bound, whole_batch=whole_batch)
        data = b"" if found is None else found.read()
        batches = [batch for batch in self.batches if offset <= batch.header.last_offset]
        within = [batch for batch in batches if batch.header.last_offset < bound]
        assert data == b"".join(batch.bytes for batch in within)[: len(data)]
        if within and offset < bound:
            first_size = within[0].header.size
            assert len(data) >= (first_size if whole_batch or first_size <= max_bytes else 0)
            assert len(data) <= (max(first_size, max_bytes) if whole_batch else max_bytes)
        return data

    @invariant()
    def epochs_are_right(self) -> None:
        entries = self.log.epochs.entries
        # What the start of the log was moved over may come back after a crash, its epochs do not.
        known_from = max(self.log_start, min(entries[0][1], self.furthest_start) if entries else 0)
        expected = epochs_of(self.batches, known_from)
        if not expected and entries:
            assert entries == [(entries[0][0], self.end_offset)]
        else:
            assert entries == expected or (not entries and known_from == self.end_offset)

    @invariant()
    def producers_are_right(self) -> None:
        """They are as of all batches, or as of those from where they were found again."""
        starts = {0, self.log_start, *self.rebuilt_from}
        possible = [self.producers_from(start) for start in starts]
        known = {producer_id: ProducerState.of(p) for producer_id, p in self.log.producers.by_id.items()}
        assert self.producers_from(self.log_start).keys() <= known.keys()
        for producer_id, state in known.items():
            assert state in [states.get(producer_id) for states in possible]
        starts_of_open = [s.transaction_start for s in known.values() if s.transaction_start is not None]
        assert self.log.producers.first_undecided_offset == min(starts_of_open, default=None)

    def producers_from(self, start: int) -> dict[int, ProducerState]:
        return transactions_of(batch for batch in self.batches if batch.header.last_offset >= start).producers

    @invariant()
    def last_stable_offset_is_right(self) -> None:
        undecided = self.log.producers.first_undecided_offset
        bound = self.log.high_watermark
        if undecided is not None:
            bound = max(min(undecided, bound), self.log.log_start_offset)
        assert self.log.last_stable_offset <= bound
        if not self.decided_but_not_replicated():
            assert self.log.last_stable_offset == bound

    def decided_but_not_replicated(self) -> bool:
        return any(
            batch.header.is_control and batch.header.base_offset >= self.log.high_watermark for batch in self.batches
        )

    @rule(part=PARTS, bound_part=PARTS)
    def ask_for_aborted_transactions(self, part: float, bound_part: float) -> None:
        offset = self.log_start + round((self.end_offset - self.log_start) * part)
        bound = offset + round((self.end_offset - offset) * bound_part)
        found = self.log.aborted_transactions(offset, bound)
        known = {(entry.producer_id, entry.last_offset): entry for entry in transactions_of(self.batches).aborted}
        seen = set()
        for entry in found:
            assert known[entry.producer_id, entry.last_offset].first_offset <= entry.first_offset < bound
            assert entry.last_offset >= offset
            seen.add((entry.producer_id, entry.last_offset))
        for place, entry in known.items():
            data = self.data_of(entry.producer_id, max(entry.first_offset, self.log_start), entry.last_offset)
            if entry.last_offset >= offset and any(batch.header.base_offset < bound for batch in data):
                assert place in seen

    def data_of(self, producer_id: int, first_offset: int, end_offset: int) -> list[Batch]:
        return [
            batch
            for batch in self.batches
            if batch.header.producer_id == producer_id and first_offset <= batch.header.last_offset < end_offset
        ]


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=150, stateful_step_count=40)
