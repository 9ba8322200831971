"""Checking one partition folder: each file by itself, the files against each other, and nothing is changed."""

from __future__ import annotations

from pathlib import Path

from ottla.log.epochs import LeaderEpochs
from ottla.log.inspect.batches import PlacedBatch, SegmentReader, is_mark_of_compaction, wrong_records
from ottla.log.inspect.files import Kind, LogFile, known_files
from ottla.log.inspect.indexes import AbortedIndexCheck, OffsetIndexCheck, TimeIndexCheck
from ottla.log.inspect.producers import ProducersCheck
from ottla.log.inspect.report import FileReport, Problem, Progress, no_progress
from ottla.log.inspect.texts import check_epochs, check_metadata
from ottla.log.scan import Fault
from ottla.records.batch import BatchHeader

PROGRESS_BYTES = 4 << 20


class PartitionCheck:
    """One pass over the files of a partition, or over those of one segment of it.

    Whether a topic is compacted decides whether offsets may be missing. Its batches may show it, or the caller
    knows; so what is wrong only in a log that is not compacted is held back until all has been read.
    """

    def __init__(
        self,
        folder: Path,
        *,
        is_compacted: bool = False,
        only_offset: int | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self.is_compacted = is_compacted
        self.progress = progress
        self.reports: dict[Path, FileReport] = {}
        self.next_offset: int | None = None  # None: nothing to go on from
        self.leader_epoch = -1
        self.epochs: LeaderEpochs | None = None
        self.producers = ProducersCheck()
        self._files = known_files(folder)
        self._only_offset = only_offset
        self._aborted: list[tuple[AbortedIndexCheck, FileReport, bool]] = []
        self._unless_compacted: list[tuple[FileReport, Problem]] = []
        self._other_epoch: tuple[FileReport, Problem] | None = None  # the first that is not what the file says
        self._other_epochs = 0

    def run(self) -> list[FileReport]:
        self._check_single_files()
        segments = self._of(Kind.SEGMENT)
        chosen = [file for file in segments if self._only_offset in (None, file.offset)]
        self._check_orphans({file.offset for file in segments})
        if chosen:
            self.producers.start_at(chosen[0].offset)
        for file in chosen:
            following = next((other.offset for other in segments if other.offset > file.offset), None)
            self._check_segment(file, following)
        self._conclude()
        return [self.reports[file.path] for file in self._files if file.path in self.reports]

    def _of(self, kind: Kind) -> list[LogFile]:
        return [file for file in self._files if file.kind is kind]

    def report_on(self, file: LogFile) -> FileReport:
        return self.reports.setdefault(file.path, FileReport.on(file))

    def _check_single_files(self) -> None:
        for file in self._of(Kind.LEADER_EPOCHS):
            self.epochs = check_epochs(self.report_on(file))
        for file in self._of(Kind.PARTITION_METADATA):
            check_metadata(self.report_on(file))
        for file in self._of(Kind.SNAPSHOT):
            self.producers.read_snapshot(self.report_on(file))
        for file in self._of(Kind.EARLIER_BATCHES):
            self.producers.read_earlier_batches(self.report_on(file))

    def _check_orphans(self, offsets: set[int]) -> None:
        for file in self._files:
            of_a_segment = file.kind in (Kind.OFFSET_INDEX, Kind.TIME_INDEX, Kind.ABORTED_INDEX)
            if of_a_segment and file.offset not in offsets:
                self.report_on(file).add(f"there is no segment {file.offset:020d}.log that it could belong to")

    def _check_segment(self, file: LogFile, following: int | None) -> None:
        SegmentCheck(self, file).run()
        if following is None or self.next_offset is None:
            return
        report = self.report_on(file)
        if self.next_offset > following:
            report.add(f"it reaches offset {self.next_offset - 1}, the next segment begins with {following}")
            self.next_offset = following
        elif self.next_offset < following:
            self.note_gap(report, self.next_offset, following, report.size_bytes)

    def note_gap(self, report: FileReport, first: int, following: int, position: int) -> None:
        """Offsets are missing before what lies at `position`."""
        reason = f"offsets {first} to {following - 1} are missing, which is right only where the topic is compacted"
        self._unless_compacted.append((report, Problem(reason, position)))
        self.producers.lose_track()

    def hold_back(self, aborted: AbortedIndexCheck, segment: FileReport) -> None:
        """An aborted index can be judged when it is known whether the log is compacted."""
        is_last = segment.file == self._of(Kind.SEGMENT)[-1]
        self._aborted.append((aborted, segment, is_last))

    def index_report(self, segment: LogFile, kind: Kind) -> FileReport | None:
        for file in self._files:
            if file.kind is kind and file.offset == segment.offset:
                return self.report_on(file)
        return None

    def compare_epoch(self, segment: FileReport, header: BatchHeader, position: int) -> None:
        """Hold the leader epoch of a batch against what leader-epoch-checkpoint says, if it says something."""
        known = self.epochs.epoch_at(header.base_offset) if self.epochs else -1
        if known not in (-1, header.leader_epoch):
            where = f"leader epoch {header.leader_epoch} at offset {header.base_offset}"
            reason = f"{where}, leader-epoch-checkpoint says {known}"
            self._other_epoch = self._other_epoch or (segment, Problem(reason, position))
            self._other_epochs += 1

    def _conclude_epochs(self) -> None:
        """A batch that stands alone against the file may have rotted; where several do, the file has."""
        if self._other_epoch is None:
            return
        segment, problem = self._other_epoch
        if self._other_epochs == 1:
            segment.add(problem.reason, problem.position)
            return
        for file in self._of(Kind.LEADER_EPOCHS):
            self.report_on(file).add(f"{self._other_epochs} batches contradict it, the first: {problem.reason}")

    def _conclude(self) -> None:
        self._conclude_epochs()
        for aborted, segment, is_last in self._aborted:
            aborted.finish(segment, may_lack_newest=is_last, is_compacted=self.is_compacted)
        if self.next_offset is not None and self._only_offset is None:
            self._check_ends(self.next_offset)
        if self.is_compacted:
            return
        for report, problem in [*self._unless_compacted, *self.producers.disagreements]:
            report.add(problem.reason, problem.position)

    def _check_ends(self, end_offset: int) -> None:
        self.producers.compare_at(end_offset)
        for file in self._of(Kind.SNAPSHOT):
            if file.offset > end_offset:
                self.report_on(file).add(f"it is of offset {file.offset}, the log ends at {end_offset}")
        for file in self._of(Kind.LEADER_EPOCHS):
            if self.epochs and self.epochs.entries and self.epochs.entries[-1][1] > end_offset:
                epoch, start_offset = self.epochs.entries[-1]
                self.report_on(file).add(f"epoch {epoch} begins at {start_offset}, the log ends at {end_offset}")


class SegmentCheck:
    """One segment file and its indexes."""

    def __init__(self, partition: PartitionCheck, file: LogFile) -> None:
        self.partition = partition
        self.file = file
        self.report = partition.report_on(file)
        offsets = partition.index_report(file, Kind.OFFSET_INDEX)
        times = partition.index_report(file, Kind.TIME_INDEX)
        self.offset_index = OffsetIndexCheck(offsets) if offsets else None
        self.time_index = TimeIndexCheck(times) if times else None
        self.aborted_index = AbortedIndexCheck(partition.index_report(file, Kind.ABORTED_INDEX))
        self.batch_count = self.record_count = 0
        self.is_sound = True  # as far as it was read

    def run(self) -> None:
        reader = SegmentReader(self.file)
        reader.continue_from(self.partition.leader_epoch)
        told_bytes = 0
        for found in reader:
            if isinstance(found, Fault):
                self._see_fault(found)
            else:
                self._see_batch(found)
            if reader.position - told_bytes >= PROGRESS_BYTES:
                self.partition.progress(self.file.path, reader.position - told_bytes)
                told_bytes = reader.position
            if self.report.is_full:
                break
        self.partition.progress(self.file.path, reader.size_bytes - told_bytes)
        self._finish(reader)

    def _see_fault(self, fault: Fault) -> None:
        self.report.add(fault.reason, fault.position)
        self.is_sound = False
        # The next batch is the first to be trusted again, and what the producers did in between is not known.
        self.partition.next_offset = None
        self.partition.producers.lose_track()

    def _see_batch(self, found: PlacedBatch) -> None:
        partition, header, position = self.partition, found.header, found.position
        self.batch_count += 1
        self.record_count += header.count
        self._check_offset(header, position)
        partition.compare_epoch(self.report, header, position)
        if reason := wrong_records(found):
            self.report.add(reason, position)
        if is_mark_of_compaction(header):
            partition.is_compacted = True
        if self.is_sound:
            self._show_to_indexes(found)
        partition.next_offset = header.next_offset
        partition.leader_epoch = header.leader_epoch

    def _check_offset(self, header: BatchHeader, position: int) -> None:
        due = self.partition.next_offset
        if position == 0:
            due = self.file.offset
        if due is not None and header.base_offset > due:
            self.partition.note_gap(self.report, due, header.base_offset, position)

    def _show_to_indexes(self, found: PlacedBatch) -> None:
        header = found.header
        if self.offset_index:
            self.offset_index.see(found.position, header)
        if self.time_index:
            self.time_index.see(header)
        self.partition.producers.compare_at(header.base_offset)
        is_abort, ended = self.partition.producers.see(found)
        if is_abort:
            self.aborted_index.expect(header.base_offset, ended)

    def _finish(self, reader: SegmentReader) -> None:
        report, partition = self.report, self.partition
        report.facts |= {"batches": self.batch_count, "records": self.record_count}
        if reader.unread_bytes:
            report.facts["unread_bytes"] = reader.unread_bytes
        elif partition.next_offset is None and self.is_sound:
            partition.next_offset = self.file.offset
        if partition.next_offset is not None:
            report.facts["next_offset"] = partition.next_offset
        # Behind a fault, what is wrong with an index cannot be told from what is wrong with the segment.
        if self.offset_index:
            self.offset_index.finish(report.size_bytes) if self.is_sound else self.offset_index.leave()
        if self.time_index:
            self.time_index.finish() if self.is_sound else self.time_index.leave()
        if self.is_sound:
            partition.hold_back(self.aborted_index, report)
