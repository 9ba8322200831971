"""Opening a log: what was left half done is finished or undone, what is torn is cut, what is missing is remade.

After a clean end the files are taken at their word. After any other, every batch from the segment of the recovery
point on is read and checked. The log ends before the first batch that is not sound. Indexes, leader epochs and
producers of the part that was read are made again from its batches. A batch that is not sound before the recovery
point was on the disk and has rotted there: that one alone is cut out.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress

from ottla.log import failed_sync, hole
from ottla.log.aborted import AbortedIndex
from ottla.log.checkpoint import LEADER_EPOCHS
from ottla.log.earlier_batches import SUFFIX as EARLIER
from ottla.log.epochs import LeaderEpochs
from ottla.log.errors import CorruptLog
from ottla.log.files import Files
from ottla.log.fitting import aborts_fit, epochs_fit, index_fits
from ottla.log.hole import Hole
from ottla.log.log import Log
from ottla.log.producers import Producers
from ottla.log.replay import rebuild_producers, replay
from ottla.log.resume import resume_at
from ottla.log.rot import Place, Rot, RotSearch, cut_out, with_ends, without_records
from ottla.log.scan import NOWHERE, Fault, SegmentScan
from ottla.log.segment import ABORTED_INDEX, LARGEST_RELATIVE_OFFSET, LOG, Segment
from ottla.log.snapshot import SUFFIX as SNAPSHOT
from ottla.log.snapshot import Snapshots, unpack_snapshot
from ottla.log.swaps import base_of, finish_swaps
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import CorruptBatch, whole_batches

ASIDE = ".aside"


@dataclasses.dataclass(slots=True)
class Recovered:
    """What opening found and did."""

    scanned_bytes: int = 0
    cut_bytes: int = 0
    rotten_bytes: int = 0
    removed_segments: int = 0
    faults: list[str] = dataclasses.field(default_factory=list)


def open_log(
    files: Files,
    folder: str,
    config: TopicConfig,
    *,
    now_ms: int,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    recovered: Recovered | None = None,
) -> Log:
    """Open the log in a folder; without the folder it is empty, and its first record makes it.

    `clean` says that it was closed in good order; `recovery_point` is up to where it is known to be on the disk.
    """
    sizes = finish_swaps(files, folder)
    if sizes is None and not log_start_offset:
        return empty_log(files, folder, config, now_ms)
    if sizes is not None and failed_sync.MARK in sizes:
        failed_sync.write_again(files, folder, sizes, recovery_point)
        clean = False
    recovered = recovered or Recovered()
    opening = _Opening(files, folder, config, now_ms, recovered)
    opening.load(sizes or {}, log_start_offset)
    log = opening.log(log_start_offset, recovery_point)
    is_whole = clean and opening.looks_whole()
    if is_whole:
        is_whole = _trust(log, recovery_point)
    if not is_whole:
        opening.scan(log, recovery_point or NOWHERE if clean else recovery_point)
    if log.end_offset < recovery_point:
        gone = f"what was on the disk from offset {log.end_offset} to {recovery_point} is gone"
        recovered.faults.append(f"{folder}: {gone}, and nobody knows why")
        opening.mark_end()
    if clean and (is_whole or log.is_young) and log.recovery_point == log.end_offset and not log.is_empty:
        log.flusher.note_clean_end()
    _settle(log, log_start_offset, now_ms)
    opening.tell_hole(log)
    log.lacks_end = opening.lacks_end
    log.segments.close()  # until somebody reads or writes
    return log


def empty_log(
    files: Files,
    folder: str,
    config: TopicConfig,
    now_ms: int,
    topic_id: bytes | None = None,
) -> Log:
    """A log whose folder is not there. Its first record makes the folder, and notes the topic id in it."""
    segment = Segment(files, folder, 0, created_ms=now_ms, index_interval_bytes=config.index_interval_bytes)
    return Log(
        files,
        folder,
        config,
        segments=[segment],
        epochs=LeaderEpochs(files, folder),
        producers=Producers(),
        snapshots=Snapshots(files, folder),
        topic_id=topic_id,
        has_folder=False,
    )


class _Opening:
    def __init__(self, files: Files, folder: str, config: TopicConfig, now_ms: int, recovered: Recovered) -> None:
        self.files = files
        self.folder = folder
        self.config = config
        self.now_ms = now_ms
        self.recovered = recovered
        self.segments: list[Segment] = []
        self.snapshots = Snapshots(files, folder)
        self.epochs: LeaderEpochs | None = None
        self._known_epochs: list[tuple[int, int]] = []  # before anything was read
        self._is_searched = False  # for rot
        self._searched_from = 0  # which segment
        self._cut_out: set[int] = set()  # the segments that some was cut out of
        self._sound_again_at = 0  # where the log goes on behind the last of it
        self._rotten_at = 0  # the first offset of the last rot
        self._later_snapshots: dict[int, bytes] = {}
        self._is_marked = False  # as one with a hole
        self.lacks_end = False  # more than a write that a crash ended is cut off

    def load(self, sizes: dict[str, int], log_start_offset: int) -> None:
        """Find the segments, the snapshots and the leader epochs in the folder."""
        self._is_marked = hole.MARK in sizes
        self.lacks_end = hole.END_MARK in sizes
        bases = sorted(base_of(name) for name in sizes if name.endswith(LOG))
        for base_offset in bases:
            self.segments.append(self._segment(base_offset, sizes))
        self._remove_orphans(sizes, set(bases))
        if not self.segments:
            self.segments.append(self._first_segment(log_start_offset))
        offsets = {base_of(name) for name in sizes if name.endswith(SNAPSHOT)}
        earlier = {base_of(name) for name in sizes if name.endswith(EARLIER)}
        self.snapshots = Snapshots(self.files, self.folder, offsets, offsets & earlier)
        for offset in earlier - offsets:
            self.files.remove(self.snapshots.path(offset, EARLIER))
        if LEADER_EPOCHS in sizes:
            self.epochs = LeaderEpochs.load(self.files, self.folder)

    def _first_segment(self, log_start_offset: int) -> Segment:
        segment = self._segment(log_start_offset, None)
        if log_start_offset:  # which the name of a file must keep
            self.files.make_folder(self.folder)
            segment.append(b"")
        return segment

    def _segment(self, base_offset: int, sizes: dict[str, int] | None) -> Segment:
        return Segment(
            self.files,
            self.folder,
            base_offset,
            created_ms=self.now_ms,
            index_interval_bytes=self.config.index_interval_bytes,
            sizes=sizes,
        )

    def _remove_orphans(self, sizes: dict[str, int], bases: set[int]) -> None:
        """Indexes whose segment is gone."""
        for name in sizes:
            kind = name[20:]
            if kind in (".index", ".timeindex", ".txnindex") and base_of(name) not in bases:
                self.files.remove(f"{self.folder}/{name}")

    def log(self, log_start_offset: int, recovery_point: int) -> Log:
        start = max(log_start_offset, self.segments[0].base_offset)
        return Log(
            self.files,
            self.folder,
            self.config,
            segments=self.segments,
            epochs=self.epochs or LeaderEpochs(self.files, self.folder),
            producers=Producers(),
            snapshots=self.snapshots,
            log_start_offset=start,
            end_offset=self.segments[-1].base_offset,
            recovery_point=recovery_point,
        )

    def looks_whole(self) -> bool:
        """Whether the indexes and the epochs are such as a clean end leaves them."""
        if self.epochs is None and any(segment.size_bytes for segment in self.segments):
            return False
        return all(index_fits(segment) for segment in self.segments)

    def scan(self, log: Log, recovery_point: int) -> None:
        """Read and check every batch from the segment of the recovery point on, and remake what follows from it."""
        first = self._searched_from if self._is_searched else self._first_to_scan(log, recovery_point)
        position, next_offset = self._resume(log, self.segments[first], recovery_point)
        if not self._is_searched:
            self._known_epochs = list(log.epochs.entries)
            if not epochs_fit(log.epochs, log.segments, log.log_start_offset, next_offset):
                self._tell_contradiction(log.epochs.path)
                log.epochs.forget_from(0)
                first, position, next_offset = 0, 0, self.segments[0].base_offset
        log.epochs.forget_from(next_offset)
        leader_epoch = log.epochs.latest
        self._keep_later_snapshots(log, next_offset, recovery_point)
        log.snapshots.remove(lambda taken: taken > next_offset and taken not in self._later_snapshots)
        log.snapshots.set_aside(lambda taken: taken > next_offset)
        rebuild_producers(log, next_offset)
        # What is on the disk may have been compacted in a time when the topic was, or have lost what had rotted. Behind
        # that, only what was copied from a compacted log has gaps.
        dense_from = NOWHERE if self.config.is_compacted else max(recovery_point, self._sound_again_at)
        start = Place(position, next_offset, leader_epoch)
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            scan = SegmentScan(
                segment,
                position=position,
                next_offset=next_offset,
                leader_epoch=leader_epoch,
                dense_from=dense_from,
            )
            self._remake(log, segment, scan)
            if scan.fault is not None and start.next_offset < recovery_point and not self._is_searched:
                self._cut_out_rot(log, first, start, recovery_point)
                self.scan(log, recovery_point)
                return
            segment.aborted.replace_stale()
            position = 0
            next_offset, leader_epoch = max(scan.next_offset, next_offset), scan.leader_epoch
            if scan.fault is not None:
                self._cut(segment, scan.fault, next_offset)
            is_torn = scan.fault is not None and next_offset >= recovery_point
            if is_torn or self._is_followed_by_a_hole(number, next_offset, recovery_point):
                self._remove_behind(log, number, keeps_aside=recovery_point == 0)
                break
            if number + 1 < len(self.segments):
                self._seal(log, segment, self.segments[number + 1].base_offset, recovery_point)
        if log.epochs.entries != self._known_epochs and (log.epochs.has_file or not log.is_young):
            log.epochs.write(durable=True)  # some may lie before the recovery point
        log.end_offset = next_offset
        log.recovery_point = min(recovery_point, next_offset)
        log.snapshots.forget_aside()
        self._tell_open_transactions(log)

    def _seal(self, log: Log, segment: Segment, following: int, recovery_point: int) -> None:
        """Bring what was made again of a segment into its files, and the producers as of the next."""
        segment.write_indexes()
        if following < recovery_point:
            segment.sync()  # no flush will come to it any more
        self._believe_snapshot(log, following)
        log.snapshots.take(following, log.producers, durable=segment.base_offset in self._cut_out)

    def _believe_snapshot(self, log: Log, offset: int) -> None:
        """Only a snapshot from before knows the end of a transaction that was cut out, now or long ago."""
        with suppress(CorruptLog, KeyError):
            known = unpack_snapshot(self._later_snapshots[offset])
            open_then = {(producer_id, producer.transaction_start) for producer_id, producer in known}
            for producer_id, producer in log.producers.by_id.items():
                if (
                    producer.transaction_start is not None
                    and (producer_id, producer.transaction_start) not in open_then
                ):
                    break
            else:
                return
            log.producers.clear()
            log.producers.restore(known)

    # Rot

    def _keep_later_snapshots(self, log: Log, next_offset: int, recovery_point: int) -> None:
        """Have those at hand that were taken where segments begin that are on the disk: they will be taken again."""
        bases = {segment.base_offset for segment in self.segments}
        for taken in log.snapshots.offsets:
            if next_offset < taken <= recovery_point and taken in bases and taken not in self._later_snapshots:
                with suppress(FileNotFoundError):
                    self._later_snapshots[taken] = self.files.read_all(log.snapshots.path(taken))

    def _cut_out_rot(self, log: Log, first: int, place: Place, recovery_point: int) -> None:
        """A scan ended at bytes that were on the disk: cut those out, and all others of that kind."""
        self._is_searched, self._searched_from = True, first
        for taken in self._later_snapshots:  # nothing else will tell of the ends that are cut out
            self.files.sync_path(log.snapshots.path(taken))
        producer_epochs = {producer_id: producer.epoch for producer_id, producer in log.producers.by_id.items()}
        for number in range(first, len(self.segments)):
            segment = self.segments[number]
            if segment.base_offset >= recovery_point:
                return
            end_offset, most_epoch = self._beginning_of(number + 1)
            search = RotSearch(segment, place, recovery_point, end_offset, most_epoch)
            search.run()
            if search.found:
                self._mark_hole(Hole(search.found[0].first_offset, recovery_point))
                self._cut_out.add(segment.base_offset)
                self._note_rot(segment, search.found)
                aborted = AbortedIndex.load(self.files, segment.path(ABORTED_INDEX)).entries
                found = with_ends(
                    segment, place, search.found, min(end_offset, recovery_point), aborted, producer_epochs
                )
                cut_out(self.files, self.folder, segment, self._with_end(number, search, found, recovery_point))
            self._sound_again_at = max(self._sound_again_at, search.sound_again_at)
            place = search.place._replace(position=0)

    def _mark_hole(self, found: Hole) -> None:
        """Before anything is cut out, or a crash would leave a hole that nobody knows of."""
        if self._is_marked:
            known = hole.read_mark(self.files, self.folder, found.end_offset)
            found = Hole(min(known.first_offset, found.first_offset), max(known.end_offset, found.end_offset))
        hole.mark(self.files, self.folder, found)
        self._is_marked = True

    def mark_end(self) -> None:
        """Before it is cut off, or a crash would leave a log that looks whole."""
        if not self.lacks_end:
            hole.mark_end(self.files, self.folder)
            self.lacks_end = True

    def tell_hole(self, log: Log) -> None:
        """Let the log know of its hole, unless that is gone with the records around it."""
        if not self._is_marked:
            return
        found = hole.read_mark(self.files, self.folder, log.end_offset)
        if log.log_start_offset < found.end_offset and found.first_offset < log.end_offset:
            log.hole = found
        else:
            hole.remove_mark(self.files, self.folder)

    def _with_end(self, number: int, search: RotSearch, found: list[Rot], recovery_point: int) -> list[Rot]:
        """What was found, with what keeps its offsets in the place of the last if that was the end of the log."""
        next_offset, is_last = search.place.next_offset, number + 1 == len(self.segments)
        last = found[-1]
        if last.in_place:
            next_offset = max(header.next_offset for _, header in whole_batches(last.in_place))
        if not is_last or next_offset >= recovery_point or last.end_position < search.place.position:
            return found
        filler = without_records(next_offset, recovery_point, max(search.place.leader_epoch, 0))
        return [*found[:-1], last._replace(in_place=bytes(last.in_place) + bytes(filler))]

    def _beginning_of(self, number: int) -> tuple[int, int]:
        """With which offset and leader epoch a segment begins; none that could be too high where that is not known."""
        if number == len(self.segments):
            return NOWHERE, NOWHERE
        segment = self.segments[number]
        for _, header, _ in SegmentScan(segment):
            return segment.base_offset, header.leader_epoch
        return segment.base_offset, NOWHERE

    def _note_rot(self, segment: Segment, found: list[Rot]) -> None:
        for rot in found:
            self._rotten_at = rot.first_offset
            size_bytes = rot.end_position - rot.position
            self.recovered.rotten_bytes += size_bytes
            self.recovered.faults.append(
                f"{segment.path(LOG)}, byte {rot.position}: {rot.reason}; {size_bytes} bytes from offset "
                f"{rot.first_offset} on are rotten and were put aside"
            )

    def _tell_open_transactions(self, log: Log) -> None:
        """Nobody may guess how a transaction ended whose marker has rotted: it stays open until it is aborted."""
        for producer_id, producer in log.producers.by_id.items():
            start = producer.transaction_start
            if start is not None and start < self._rotten_at:
                self.recovered.faults.append(
                    f"{self.folder}: the transaction of producer {producer_id} from offset {start} on is open; its end "
                    "may be in what is rotten, and what comes behind is committed only when somebody ends it"
                )

    def _is_followed_by_a_hole(self, number: int, next_offset: int, recovery_point: int) -> bool:
        """Whether a segment lost its end while the next one kept its beginning.

        Only compaction leaves out offsets between segments, and only of segments that are on the disk. Where a
        topic is compacted and nobody knows what was on the disk, the two cannot be told apart. A follower leaves out
        billions, which no segment can have lost.
        """
        if number + 1 == len(self.segments):
            return False
        following = self.segments[number + 1].base_offset
        is_far = following - self.segments[number].base_offset > LARGEST_RELATIVE_OFFSET
        is_unknown = self.config.is_compacted and (recovery_point == 0 or is_far)
        if following == next_offset or following <= recovery_point or is_unknown:
            return False
        path = self.segments[number].path(LOG)
        self.recovered.faults.append(f"{path}: ends at offset {next_offset}, the next begins at {following}")
        return True

    def _resume(self, log: Log, segment: Segment, recovery_point: int) -> tuple[int, int]:
        """Where the reading of a segment begins: position and offset.

        A snapshot of the producers within a segment was written when all before it was on the disk, with its indexes
        and epochs. If the recovery point was known to be as far, there it is.
        """
        if self._is_searched and segment.base_offset in self._cut_out:
            return 0, segment.base_offset  # what the indexes knew is forgotten
        bases = {each.base_offset for each in self.segments}
        taken = [each for each in log.snapshots.offsets if segment.base_offset < each <= recovery_point]
        if taken and taken[-1] not in bases and self.epochs is not None:
            position = resume_at(segment, taken[-1], lambda: self._aborts_fit(log, segment))
            if position is not None:
                return position, taken[-1]
        return 0, segment.base_offset

    def _first_to_scan(self, log: Log, recovery_point: int) -> int:
        if self.epochs is None:
            return 0
        unflushed = next(log.segments.starting_at(recovery_point - 1))
        first = self.segments.index(unflushed)
        for number, segment in enumerate(self.segments[:first]):
            if not (index_fits(segment) and self._aborts_fit(log, segment)):
                return number
        return first

    def _aborts_fit(self, log: Log, segment: Segment) -> bool:
        """Whether what the file says of aborted transactions is what the batches say."""
        if not aborts_fit(log.segments, segment.aborted.entries):
            self._tell_contradiction(segment.path(ABORTED_INDEX))
            return False
        return True

    def _tell_contradiction(self, path: str) -> None:
        self.recovered.faults.append(f"{path}: contradicts the batches, and is made again from them")

    def _remake(self, log: Log, segment: Segment, scan: SegmentScan) -> None:
        if scan.position == 0:
            segment.forget_indexes()
        self.recovered.scanned_bytes -= scan.position
        note_batch, epochs = segment.note_batch, log.epochs
        for position, header, batch in scan:
            base_offset, _, leader_epoch, _, _, _, last_offset_delta, _, max_timestamp, producer_id, _, _, _ = header
            note_batch(position, len(batch), base_offset + last_offset_delta, max_timestamp)
            if leader_epoch > epochs.latest:
                epochs.add(leader_epoch, base_offset)  # written when all are known
            if producer_id >= 0:
                completed = replay(log, segment, position, header)
                if completed is not None and completed.aborted:
                    log.note_aborted(segment, completed)
        self.recovered.scanned_bytes += scan.position

    def _cut(self, segment: Segment, fault: Fault, next_offset: int) -> None:
        self.recovered.cut_bytes += segment.size_bytes - fault.position
        search = RotSearch(segment, Place(fault.position, next_offset, -1), NOWHERE, NOWHERE, NOWHERE)
        if not (fault.is_torn and search.is_unfinished()):
            self.mark_end()
        self.recovered.faults.append(f"{segment.path(LOG)}, byte {fault.position}: {fault.reason}")
        segment.cut(fault.position, next_offset)
        segment.file.sync()  # or what is written there next may be followed by what was cut, after another crash

    def _remove_behind(self, log: Log, number: int, *, keeps_aside: bool) -> None:
        """Where nobody knows what was on the disk, what goes may be sound, and is put aside."""
        while len(self.segments) > number + 1:
            last = self.segments[-1]
            self.recovered.removed_segments += 1
            self.recovered.cut_bytes += last.size_bytes
            if last.size_bytes:
                self.mark_end()
            if keeps_aside and last.size_bytes:
                self.files.rename(last.path(LOG), last.path(LOG) + ASIDE)
                self.recovered.faults.append(f"{last.path(LOG)}: put aside, since it follows what does not hold")
            log.segments.remove_last(self.now_ms)
        self.files.sync_folder(self.folder)


def _trust(log: Log, recovery_point: int) -> bool:
    """After a clean end only the last offset is read from the log, and the producers from their snapshot.

    False where not even those can be read, or the log does not end where it did: what was on the disk has rotted, and
    all of it must be looked at. Offsets that were given would be given again, or many left out.
    """
    try:
        end_offset = max(log.active.next_offset(), log.active.base_offset)
        if recovery_point and end_offset != recovery_point:
            return False
        log.end_offset = end_offset
        log.snapshots.remove(lambda taken: taken > log.end_offset)
        rebuild_producers(log)
    except (CorruptLog, CorruptBatch):
        return False
    log.recovery_point = log.end_offset
    log.epochs.truncate_from_end(log.end_offset)
    return True


def _settle(log: Log, log_start_offset: int, now_ms: int) -> None:
    if log_start_offset > log.end_offset:
        # What was removed is known to be gone, and what came after it was lost.
        log.truncate_fully(log_start_offset, now_ms)
    log.epochs.truncate_from_start(log.log_start_offset)
    kept = {segment.base_offset for segment in log.segments}
    kept.update(log.snapshots.offsets[-1:])
    # Should this end badly before the recovery point moves on, the next recovery begins with this one again.
    kept.update([taken for taken in log.snapshots.offsets if taken <= log.recovery_point][-1:])
    log.snapshots.remove(lambda taken: taken not in kept)
