"""A day in the life of a data folder, and what must be true of it however it ends."""

from collections.abc import Sequence

from ottla.log.checkpoint import RECOVERY_POINTS
from ottla.log.housekeeping import Housekeeping
from ottla.log.log import Log
from ottla.log.manager import LogManager
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import BatchOptions, ControlMarker, build_batch, build_marker
from ottla.records.codec import stamp_batches
from ottla.records.read import Batch
from ottla.testing.files import SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY
from ottla.testing.slices import run_here
from tests.log.expected import ProducerState, check_segments, epochs_of, transactions_of
from tests.log.writing import append_batch, served_batches

FOLDER = "data"
PLAIN, COMPACTED = "plain", "compacted"
CONFIGS = {
    PLAIN: TopicConfig(internal_segment_bytes=600, index_interval_bytes=200, retention_ms=1000, file_delete_delay_ms=0),
    COMPACTED: TopicConfig(
        internal_segment_bytes=600,
        index_interval_bytes=200,
        cleanup_policy=("compact",),
        min_cleanable_dirty_ratio=0.01,
        file_delete_delay_ms=0,
    ),
}

Record = tuple[int, bytes | None, bytes | None]  # offset, key, value


def records_of(batches: list[Batch]) -> list[Record]:
    return [
        (record.offset, record.key, record.value)
        for batch in batches
        if not batch.header.is_control
        for record in batch.records()
    ]


class History:
    """What one log was given and what it acknowledged. Noted before the log is asked, so it is never behind."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.before_truncation: list[Batch] | None = None  # while one is under way
        self.acknowledged = 0
        self.removable = 0  # retention was let loose up to here
        self.lost: set[Record] = set()  # what was never acknowledged and is gone

    def give(self, batch: bytearray) -> None:
        self.batches.append(Batch(read_header(batch), memoryview(bytes(batch))))

    def begin_truncation(self, offset: int) -> None:
        self.before_truncation = self.batches
        self.batches = [batch for batch in self.batches if batch.header.next_offset <= offset]
        end_offset = self.batches[-1].header.next_offset if self.batches else 0
        self.acknowledged = min(self.acknowledged, end_offset)

    def end_truncation(self) -> None:
        self.before_truncation = None

    def has_part(self, batches: list[Batch]) -> bool:
        """Whether these are batches that were given one after the other."""
        first = batches[0].header.base_offset if batches else 0
        for version in (self.batches, self.before_truncation or []):
            given = [batch.bytes for batch in version if batch.header.base_offset >= first]
            if [batch.bytes for batch in batches] == given[: len(batches)]:
                return True
        return False


class Workload:
    def __init__(self, files: SimulatedFiles) -> None:
        self.files = files
        self.now_ms = 0
        self.histories = {name: History() for name in CONFIGS}
        self._sequence = 0
        self._manager = LogManager(files, FOLDER)
        files.make_folder(FOLDER)
        files.sync_folder("")

    # The day

    def run(self) -> None:
        self.open()
        self._write_plain()
        self._write_compacted(6)
        self._truncate_plain()
        self._retain_plain()
        self._write_compacted(3)
        self._close()
        self.open()
        self._append_data(PLAIN, epoch=4)
        self._flush_resumably(PLAIN)
        self._append_data(PLAIN, epoch=4)
        self._flush(PLAIN)

    def open(self) -> None:
        self.now_ms += 1
        self._manager = LogManager(self.files, FOLDER)
        self._manager.open(CONFIGS.__getitem__, self.now_ms)
        for name, config in CONFIGS.items():
            if (name, 0) not in self._manager.logs:
                assert self.histories[name].acknowledged == 0
                self._manager.create(name, 0, config, self.now_ms)

    def _write_plain(self) -> None:
        """Sequences, an aborted and a committed transaction, epochs, rolls."""
        for epoch in (0, 0, 1):
            self._append_data(PLAIN, epoch=epoch, producer_id=7)
            self._append_data(PLAIN, epoch=epoch)
        self._flush(PLAIN)
        for producer_id, is_commit in ((8, False), (9, True)):
            for sequence in (0, 2):
                self._append_transactional(producer_id, sequence)
            self._flush(PLAIN)
            self._append_marker(producer_id, is_commit)
            self._append_data(PLAIN, epoch=2, producer_id=7)
        self._append_data(PLAIN, epoch=2)
        self._flush(PLAIN)
        self._manager.write_checkpoint(RECOVERY_POINTS)

    def _truncate_plain(self) -> None:
        log, history = self.log(PLAIN), self.histories[PLAIN]
        offset = log.segments[-2].base_offset + 3
        history.begin_truncation(offset)
        log.truncate_to(offset, self.now_ms)
        history.end_truncation()
        for _ in range(2):
            self._append_data(PLAIN, epoch=3)
            self._flush_resumably(PLAIN)
        self._append_data(PLAIN, epoch=3)
        self._flush(PLAIN)
        self._truncate_in_steps()

    def _truncate_in_steps(self) -> None:
        """As a follower does, with all that may come in between."""
        log, history = self.log(PLAIN), self.histories[PLAIN]
        for rises, offset in enumerate((log.end_offset - 3, log.end_offset - 7)):
            log.prepare_cut(offset)()
            if rises:
                self._flush(PLAIN)
                self._manager.write_checkpoint(RECOVERY_POINTS)
            history.begin_truncation(offset)
            log.cut_to(offset, self.now_ms)
            if rises:
                self._append_data(PLAIN, epoch=3)
            else:
                assert log.cut is not None
                log.cut.sync()
                log.cut = None
            history.end_truncation()
            self._append_data(PLAIN, epoch=3)
            self._flush(PLAIN)

    def _retain_plain(self) -> None:
        log = self.log(PLAIN)
        log.advance_high_watermark(log.end_offset)
        self.now_ms = log.segments[1].largest_timestamp() + 1001
        self.histories[PLAIN].removable = log.segments[2].base_offset
        housekeeping = Housekeeping(self._manager, lambda: self.now_ms)
        run_here(housekeeping.retain())
        assert log.log_start_offset == self.histories[PLAIN].removable
        self._append_data(PLAIN, epoch=3)
        self._flush(PLAIN)
        run_here(housekeeping.remove())

    def _write_compacted(self, count: int) -> None:
        log = self.log(COMPACTED)
        for number in range(count):
            keys = [b"key %d" % (number % 2), b"key %d" % (number % 4)]
            self._append_data(COMPACTED, epoch=0, producer_id=7, keys=keys)
        self._flush(COMPACTED)
        log.advance_high_watermark(log.end_offset)
        housekeeping = Housekeeping(self._manager, lambda: self.now_ms)
        run_here(housekeeping.compact())
        self._append_data(COMPACTED, epoch=0, keys=[b"other", b"other"])
        self._flush(COMPACTED)
        run_here(housekeeping.remove())

    def _close(self) -> None:
        self._manager.close(self.now_ms)

    # Its steps

    def log(self, name: str) -> Log:
        return self._manager.logs[name, 0]

    def _append_data(
        self, name: str, *, epoch: int, producer_id: int = -1, keys: Sequence[bytes | None] | None = None
    ) -> None:
        self._sequence += 2
        self.now_ms += 10
        values = [b"value %d " % (self._sequence + number) + b"." * 50 for number in range(2)]
        producer: BatchOptions = {}
        if producer_id >= 0:
            producer["producer_id"] = producer_id
            producer["producer_epoch"] = epoch
            producer["base_sequence"] = self._next_sequence(name, epoch)
        batch = build_batch(values, keys=keys, timestamp=self.now_ms, **producer)
        self._append(name, batch, epoch)

    def _next_sequence(self, name: str, epoch: int) -> int:
        known = self.log(name).producers.by_id.get(7)
        return known.last_sequence + 1 if known is not None and known.epoch == epoch else 0

    def _append_transactional(self, producer_id: int, sequence: int) -> None:
        self.now_ms += 10
        batch = build_batch(
            [b"in a transaction"] * 2,
            timestamp=self.now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=True,
        )
        self._append(PLAIN, batch, 1)

    def _append_marker(self, producer_id: int, is_commit: bool) -> None:
        marker = ControlMarker(is_commit, coordinator_epoch=3)
        batch = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=self.now_ms)
        self._append(PLAIN, batch, 1)

    def _append(self, name: str, batch: bytearray, epoch: int) -> None:
        log = self.log(name)
        epoch = max(epoch, log.epochs.latest)
        stamp_batches(batch, log.end_offset, epoch)
        self.histories[name].give(batch)
        append_batch(log, batch, epoch=epoch, now_ms=self.now_ms)

    def _flush(self, name: str) -> None:
        log = self.log(name)
        log.flush(self.now_ms)
        self.histories[name].acknowledged = log.end_offset

    def _flush_resumably(self, name: str) -> None:
        """As the housekeeping does when much was written."""
        log = self.log(name)
        flush = log.flusher.begin_resumable()
        assert flush is not None
        flush.run()
        log.flusher.end(flush, self.now_ms)
        self.histories[name].acknowledged = log.end_offset
        self._manager.write_checkpoint(RECOVERY_POINTS)

    # What must be true

    def check(self) -> None:
        """Open what is left: all that was acknowledged is there, nothing else than what was given, and it goes on."""
        self.open()
        for name in CONFIGS:
            check_segments(self.log(name))
        self._check_plain()
        self._check_compacted()

    def check_it_goes_on(self) -> None:
        for name in CONFIGS:
            self._append_data(name, epoch=9, keys=[b"new", b"new"])
            self._flush(name)
        self.files.crash(SYNCED_ONLY)
        self.check()

    def _check_plain(self) -> None:
        log, history = self.log(PLAIN), self.histories[PLAIN]
        batches = served_batches(log)
        assert history.has_part(batches)
        assert log.end_offset >= history.acknowledged
        assert log.log_start_offset <= history.removable
        history.batches = [
            batch for batch in history.batches if batch.header.base_offset < log.log_start_offset
        ] + batches
        history.end_truncation()
        # Retention forgets the epochs of what it removes first, so those of what comes back may be unknown.
        known_from = max(log.log_start_offset, log.epochs.entries[0][1] if log.epochs.entries else 0)
        assert known_from <= history.removable
        assert log.epochs.entries == epochs_of(batches, known_from)
        self._check_transactions(log, batches)

    def _check_transactions(self, log: Log, batches: list[Batch]) -> None:
        whole, rest = transactions_of(self.histories[PLAIN].batches), transactions_of(batches)
        for producer_id, state in rest.producers.items():
            known = ProducerState.of(log.producers.by_id[producer_id])
            assert known in (state, whole.producers[producer_id])
        assert log.producers.by_id.keys() <= whole.producers.keys()
        log.advance_high_watermark(log.end_offset)
        assert log.last_stable_offset == min(rest.open_starts(), default=log.end_offset)
        assert log.aborted_transactions(log.log_start_offset, log.end_offset) == rest.aborted

    def _check_compacted(self) -> None:
        log, history = self.log(COMPACTED), self.histories[COMPACTED]
        given, left = records_of(history.batches), records_of(served_batches(log))
        assert set(left) <= set(given)
        assert log.end_offset >= history.acknowledged
        latest = {key: offset for offset, key, _ in left}
        for record in set(given) - set(left) - history.lost:
            offset, key, _ = record
            if latest.get(key, -1) < offset:
                assert offset >= history.acknowledged
                history.lost.add(record)
        history.batches = [batch for batch in history.batches if batch.header.base_offset < log.end_offset]
