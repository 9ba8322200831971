"""Following the producers of a partition while its batches are read, and holding the snapshots against them."""

from __future__ import annotations

from ottla.log.aborted import AbortedTransaction
from ottla.log.earlier_batches import unpack_earlier_batches
from ottla.log.errors import CorruptLog
from ottla.log.inspect.batches import PlacedBatch
from ottla.log.inspect.report import FileReport, Problem
from ottla.log.producers import Producer, Producers
from ottla.log.snapshot import SUFFIX as SNAPSHOT
from ottla.log.snapshot import crc_of, unpack_snapshot
from ottla.records.batch import CorruptBatch
from ottla.records.build import ControlMarker, read_marker

_EVERYTHING = 1 << 62


class ProducersCheck:
    def __init__(self) -> None:
        self.disagreements: list[tuple[FileReport, Problem]] = []  # of a log that is not compacted
        self._producers = Producers()
        self._is_complete = False  # whether all producers there can be are known
        self._snapshots: dict[int, tuple[FileReport, dict[int, Producer]]] = {}

    def read_snapshot(self, report: FileReport) -> None:
        try:
            producers = dict(unpack_snapshot(report.file.path.read_bytes()))
        except CorruptLog as error:
            report.add(str(error))
            return
        report.facts["producers"] = len(producers)
        offset = report.file.offset
        for producer_id, producer in producers.items():
            if max(producer.last_offset, producer.transaction_start or -1) >= offset:
                report.add(f"producer {producer_id} has written behind offset {offset}, of which the snapshot is")
        self._snapshots[offset] = report, producers

    @staticmethod
    def read_earlier_batches(report: FileReport) -> None:
        path = report.file.path
        try:
            belongs_to, batches = unpack_earlier_batches(path.read_bytes())
            if belongs_to != crc_of(path.with_suffix(SNAPSHOT).read_bytes()):
                report.add("it belongs to another snapshot than the one of this offset")
        except CorruptLog as error:
            report.add(str(error))
        except FileNotFoundError:
            report.add("there is no snapshot that it could belong to")
        else:
            report.facts["batches"] = len(batches)

    def start_at(self, offset: int) -> None:
        """The reading begins at `offset`: a snapshot of there says who had written before."""
        _, producers = self._snapshots.get(offset, (None, {}))
        self._producers.restore(producers.items())
        self._is_complete = offset == 0 or offset in self._snapshots

    def lose_track(self) -> None:
        """Batches were skipped, so nothing more can be said."""
        self._producers.clear()
        self._is_complete = False

    def see(self, found: PlacedBatch) -> tuple[bool, AbortedTransaction | None]:
        """Take note of a batch: whether it is an ABORT, and what it ended, None where the beginning was not seen."""
        header = found.header
        if header.producer_id < 0 or header.producer_epoch < 0:
            return False, None
        if not header.is_control:
            self._producers.appended(header, header.base_offset)
            return False, None
        marker = _marker(found)
        if marker is None:
            return False, None
        completed = self._producers.marked(header, header.base_offset, marker)
        self._producers.replicated(_EVERYTHING)
        if marker.is_commit or completed is None or not self._is_complete:
            return not marker.is_commit, None
        stable_offset = self._producers.stable_offset_after(completed)
        first_offset, last_offset = completed.first_offset, completed.last_offset
        return True, AbortedTransaction(completed.producer_id, first_offset, last_offset, stable_offset)

    def compare_at(self, offset: int) -> None:
        """Hold a snapshot of `offset`, if there is one, against what was read up to there."""
        if not self._is_complete or offset not in self._snapshots:
            return
        report, producers = self._snapshots[offset]
        for producer_id, noted in producers.items():
            read = self._producers.by_id.get(producer_id)
            if read is None:
                reason = f"producer {producer_id} has written nothing before offset {offset}"
            elif _state(noted) != _state(read):
                reason = f"producer {producer_id} is {_state(noted)}, the segments say {_state(read)}"
            else:
                continue
            self.disagreements.append((report, Problem(reason)))


def _marker(found: PlacedBatch) -> ControlMarker | None:
    """None for one that compaction emptied, and for one of which the check of the records has told already."""
    try:
        return read_marker(found.batch) if found.header.count else None
    except CorruptBatch:
        return None


def _state(producer: Producer) -> dict[str, int | None]:
    return {
        "epoch": producer.epoch,
        "last_sequence": producer.last_sequence,
        "last_offset": producer.last_offset,
        "transaction_start": producer.transaction_start,
    }
