"""Whatever is done to a log, verify finds nothing wrong with it: in use, closed, cut, retained, compacted, reopened."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.log.compaction import Compaction, cleanable
from ottla.log.files import DiskFiles
from ottla.log.inspect.folder import check_path
from ottla.log.log import Log
from ottla.log.recovery import open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.build import ControlMarker, build_batch, build_marker
from ottla.testing.slices import run_here
from tests.cli.partitions import TIME, append

CONFIG = TopicConfig(internal_segment_bytes=600, index_interval_bytes=100, cleanup_policy=("compact",))

OPERATIONS = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 4), st.integers(0, 4)),
    st.tuples(st.just("transaction"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("epoch")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("truncate"), st.integers(1, 9)),
    st.tuples(st.just("retain")),
    st.tuples(st.just("compact")),
    st.tuples(st.just("reopen"), st.booleans()),
)


class Driver:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.leader_epoch = 0
        self.producer_id = 0
        self.compacted_up_to = 0
        self.log = self.open(clean=False)

    def open(self, *, clean: bool) -> Log:
        return open_log(DiskFiles(), str(self.folder), CONFIG, now_ms=TIME, clean=clean)

    def do(self, name: str, *arguments: int) -> None:
        getattr(self, name)(*arguments)
        self.log.advance_high_watermark(self.log.end_offset)

    def append(self, count: int, codec: int) -> None:
        keys = [f"key {number}".encode() for number in range(count)]
        timestamp = TIME + self.log.end_offset * (-1) ** count
        append(self.log, build_batch(keys, keys=keys, timestamp=timestamp, codec=codec), leader_epoch=self.leader_epoch)

    def transaction(self, count: int, is_commit: bool) -> None:
        """Its own marker comes at once, and that of the one before only now and then."""
        self.producer_id += 1
        batch = build_batch(
            [b"value"] * count,
            keys=[b"key"] * count,
            timestamp=TIME,
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        append(self.log, batch, leader_epoch=self.leader_epoch)
        for producer_id in range(self.producer_id - count + 1, self.producer_id + 1):
            marker = ControlMarker(is_commit=bool(is_commit), coordinator_epoch=0)
            batch = build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=TIME)
            append(self.log, batch, leader_epoch=self.leader_epoch)

    def epoch(self) -> None:
        self.leader_epoch += 2

    def roll(self) -> None:
        self.log.roll(TIME)

    def truncate(self, count: int) -> None:
        least = max(self.log.log_start_offset, self.compacted_up_to)
        offset = max(self.log.end_offset - count, least)
        self.log.truncate_to(offset, TIME)

    def retain(self) -> None:
        if len(self.log.segments) > 1:
            self.log.remove_first(1, TIME)

    def compact(self) -> None:
        self.log.flush(TIME)
        compaction = Compaction(self.log, cleanable(self.log, 0, TIME), TIME)
        run_here(compaction.run())
        self.compacted_up_to = compaction.cleaned_up_to  # what is compacted is replicated, and never cut

    def reopen(self, clean: bool) -> None:
        if clean:
            self.log.close(TIME)
        self.log = self.open(clean=clean)


@given(st.lists(OPERATIONS, max_size=25))
@settings(max_examples=60)
def test_sound_logs_pass(operations: list[tuple[str, *tuple[int, ...]]]) -> None:
    with tempfile.TemporaryDirectory() as data:
        folder = Path(data) / "topic-0"
        driver = Driver(folder)
        driver.append(1, 0)  # or there would be no folder to look at
        for operation in operations:
            driver.do(*operation)
        was_compacted = ("compact",) in operations
        for _ in range(2):  # in use, and closed
            found = [
                (report.file.path.name, report.problems) for report in check_path(folder, is_compacted=was_compacted)
            ]
            assert [name for name, problems in found if problems] == [], found
            driver.log.close(TIME)
