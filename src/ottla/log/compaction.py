"""Compaction: of each key only the last record is kept, and in time not even that if it is a tombstone.

First the keys of the part that was never compacted are read into a map, key to last offset. Then every segment up to
the end of that part is rewritten without the records that the map shows to be replaced, and the new file takes the
place of the old. Offsets never change. Everything goes in slices: between two of them the log may be appended to,
rolled and read.

Only whole segments are rewritten: they are full, on the disk, and hold no record of an open transaction. So it is
known of each batch whether it was aborted, even where the marker is in a later segment. The map may be full in the
middle of a segment. The rest of that segment is kept, except for aborted records, and the next run begins there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from itertools import pairwise
from typing import NamedTuple

from ottla.log.aborted import AbortedRanges, AbortedTransaction
from ottla.log.errors import OUT_OF_FILES, PASSING, CorruptLog
from ottla.log.files import Buffer, remove_all
from ottla.log.log import Log
from ottla.log.scan import SegmentScan
from ottla.log.segment import CLEANED, LARGEST_RELATIVE_OFFSET, LOG, SWAP, Segment
from ottla.log.topic_config import MOST
from ottla.records.batch import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from ottla.records.codec import decode_keys
from ottla.records.portions import Portion, record_portions
from ottla.records.retain import RetainedBatch, empty_batch, retain_batch

SLICE_BYTES = 1 << 20
MAP_BYTES = 128 << 20
MOST_TOGETHER = 20  # segments that become one: their files are renamed at once
BATCH_BYTES = 1024  # what a batch counts for beside its bytes, in a slice
SEGMENT_BYTES = 1 << 16  # and a segment
ENTRY_BYTES = 160  # what a key takes in the map beside its own bytes: two objects, and its place in the table

Job = Callable[[], None]


class Slow:
    """A job that may take very long, and changes nothing that a sync relies on: no sync has to wait for it."""

    __slots__ = ("job",)

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self) -> None:
        self.job()


Keeping = Generator[Job | None, None, Buffer | None]


class Cleanable(NamedTuple):
    """How much of a log compaction could work on."""

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool  # by max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def cleanable(log: Log, first_dirty_offset: int, now_ms: int) -> Cleanable:
    """What there is to compact, given up to where the last round came."""
    start = log.segments[0].base_offset
    first_dirty_offset = max(first_dirty_offset, start)
    if first_dirty_offset > log.end_offset:
        first_dirty_offset = start
    whole = list(_whole_segments(log, first_dirty_offset, now_ms))
    dirty = [segment for segment, end_offset in whole if end_offset > first_dirty_offset]
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    clean_bytes = sum(segment.size_bytes for segment, _ in whole) - dirty_bytes
    oldest = next((first for segment in dirty if (first := segment.first_timestamp() or -1) >= 0), now_ms)
    is_overdue = dirty_bytes > 0 and now_ms - oldest > log.config.max_compaction_lag_ms
    end_offset = whole[-1][1] if whole else start
    return Cleanable(first_dirty_offset, end_offset, clean_bytes, dirty_bytes, is_overdue)


def _whole_segments(log: Log, first_dirty_offset: int, now_ms: int) -> Iterator[tuple[Segment, int]]:
    """The segments that compaction may write anew, and where each ends."""
    most_offset = min(log.last_stable_offset, log.recovery_point)
    lag_ms = log.config.min_compaction_lag_ms
    for segment, following in pairwise(log.segments):
        end_offset = following.base_offset
        is_dirty = end_offset > first_dirty_offset
        is_young = is_dirty and lag_ms > 0 and segment.largest_timestamp() > now_ms - lag_ms
        if end_offset > most_offset or is_young:
            return
        yield segment, end_offset


class Transactions:
    """Follows the transactions of the batches that go by, to tell which are aborted and which markers are idle."""

    def __init__(self, aborted: AbortedRanges) -> None:
        self._aborted = aborted
        self._seen: set[int] = set()  # producers with a batch of the transaction that their next marker ends

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if not header.attributes & TRANSACTIONAL:
            return False
        self._seen.add(header.producer_id)
        return self._aborted.find(header) is not None

    def end(self, header: BatchHeader) -> tuple[bool, AbortedTransaction | None]:
        """For a marker: whether any batch of its transaction went by; and the abort it stands for, then."""
        was_seen = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        return was_seen, self._aborted.find(header) if was_seen else None


class Compaction:
    """One round over one log. `run` does it in slices; afterwards `cleaned_up_to` is where the next one begins."""

    def __init__(self, log: Log, work: Cleanable, now_ms: int, *, map_bytes: int = MAP_BYTES) -> None:
        self.log = log
        self.read_bytes = 0
        self.cleaned_up_to = work.first_dirty_offset
        self._work = work
        self._now_ms = now_ms
        self._free_bytes = map_bytes  # of the map; the last batch may take more
        self._offsets: dict[bytes, int] = {}
        self._map_end = work.first_dirty_offset
        self._layout_version = log.segments.layout_version
        self._slice_bytes = 0

    def run(self, slice_bytes: int = SLICE_BYTES) -> Generator[Job | None, None, None]:
        """Work for about `slice_bytes` at a time.

        Each step gives None, or a job that blocks (a sync) to be run on any thread before the next step. The round
        ends early, with nothing changed that was not whole, when the log's sealed segments change under it.
        """
        if self._is_overtaken():
            return
        yield from self._map_keys(slice_bytes)
        if self._is_overtaken():
            return
        segments = [segment for segment in self.log.segments[:-1] if segment.base_offset < self._map_end]
        if not segments:
            return
        # Up to the end of what is written anew, which may lie behind that of the map.
        bounds = segments[0].base_offset, self._end_of(segments[-1])
        transactions = Transactions((yield from self.log.segments.aborted_ranges(*bounds)))
        if self._is_overtaken():
            return
        for group in self._groups(segments):
            done = yield from self._rewrite(group, transactions, slice_bytes)
            if not done:
                return
        self.cleaned_up_to = self._map_end

    def _is_overtaken(self) -> bool:
        return self.log.segments.layout_version != self._layout_version

    def _slice_is_over(self, size_bytes: int, slice_bytes: int) -> bool:
        self._slice_bytes += size_bytes
        if self._slice_bytes < slice_bytes:
            return False
        self._slice_bytes = 0
        return True

    # The map

    def _map_keys(self, slice_bytes: int) -> Iterator[None]:
        """Read the keys of the dirty part, as far as the map can hold them."""
        start, end = self._work.first_dirty_offset, self._work.end_offset
        aborted = yield from self.log.segments.aborted_ranges(start, end)
        if self._is_overtaken():
            return
        for segment in self.log.segments.starting_at(start):
            if segment.base_offset >= end:
                break
            for header, batch in self._batches(segment, segment.position_of(start)):
                if header.base_offset >= end:
                    break
                self._map_end = header.next_offset
                self.read_bytes += header.size
                if not (header.attributes & CONTROL or aborted.find(header)):
                    yield from self._map_batch(header, batch)
                if self._slice_is_over(header.size + BATCH_BYTES, slice_bytes):
                    yield None
                if self._map_end != header.next_offset or self._is_overtaken():
                    return
            if self._slice_is_over(SEGMENT_BYTES, slice_bytes):
                yield None
                if self._is_overtaken():
                    return
        self._map_end = end

    def _map_batch(self, header: BatchHeader, batch: memoryview) -> Iterator[None]:
        """Where the map is full, it ends before the first key that it does not take."""
        start, base_offset, offsets = self._work.first_dirty_offset, header.base_offset, self._offsets
        for portion in record_portions(batch, header):
            for offset_delta, key, _ in decode_keys(portion.area, portion.records):
                offset = base_offset + offset_delta
                if key is None or offset < start:
                    continue
                if key not in offsets:
                    if self._free_bytes <= 0:
                        self._map_end = offset
                        return
                    self._free_bytes -= ENTRY_BYTES + len(key)
                offsets[key] = offset
            if _is_part(portion, header):
                yield None
                if self._is_overtaken():
                    return

    @staticmethod
    def _batches(segment: Segment, position: int = 0) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The batches of a segment, each checked: what is rotten must not be written out as good."""
        scan = SegmentScan(segment, position=position)
        for _, header, batch in scan:
            yield header, batch
        if scan.fault is not None:
            raise CorruptLog(f"{segment.path(LOG)}, byte {scan.fault.position}: {scan.fault.reason}")

    # The segments

    def _groups(self, segments: list[Segment]) -> list[list[Segment]]:
        """Neighbours that may be written into one segment, by the sizes they have now."""
        config = self.log.config
        groups: list[list[Segment]] = []
        log_bytes = index_bytes = time_bytes = 0
        for segment in segments:
            log_bytes += segment.size_bytes
            index_bytes += segment.offset_index.size_bytes
            time_bytes += segment.time_index.size_bytes
            if (
                groups
                and len(groups[-1]) < MOST_TOGETHER
                and log_bytes <= config.segment_bytes
                and max(index_bytes, time_bytes) <= config.segment_index_bytes
                and self._end_of(segment) - groups[-1][0].base_offset <= LARGEST_RELATIVE_OFFSET
            ):
                groups[-1].append(segment)
            else:
                groups.append([segment])
                log_bytes = segment.size_bytes
                index_bytes, time_bytes = segment.offset_index.size_bytes, segment.time_index.size_bytes
        return groups

    def _end_of(self, segment: Segment) -> int:
        segments = self.log.segments
        return segments[segments.number_for(segment.base_offset) + 1].base_offset

    def _rewrite(
        self, group: list[Segment], transactions: Transactions, slice_bytes: int
    ) -> Generator[Job | None, None, bool]:
        """Write what is kept of `group` into one segment and put it in their place; whether that came about."""
        log = self.log
        new = Segment(
            log.files,
            log.folder,
            group[0].base_offset,
            created_ms=group[-1].created_ms,
            index_interval_bytes=log.config.index_interval_bytes,
            suffix=CLEANED,
        )
        remove_all(log.files, new.paths())  # of a round that failed
        keeper = Keeper(log, self._offsets, self._map_end, transactions, self._now_ms)
        try:
            yield from self._write_kept(new, group, keeper, slice_bytes)
            yield Slow(new.sync)
        except Exception:
            remove_all(log.files, new.paths())  # a full disk needs the room
            raise
        if self._abandon(new):
            return False
        yield from self._make_known(new)
        if self._abandon(new):
            return False
        log.replace_segments(group, [new], self._now_ms)
        self._layout_version = log.segments.layout_version
        return True

    def _make_known(self, new: Segment) -> Generator[Job | None, None, None]:
        """From then on the next opening takes the new segment in the place of the old ones."""
        log, passing = self.log, PASSING
        new.close()  # the sync of the folder needs a descriptor
        try:
            new.change_suffix(SWAP)
            passing = OUT_OF_FILES  # to want room is a failure of the sync, but then nothing was asked of the disk
            yield lambda: log.files.sync_folder(log.folder)
        except OSError as error:
            if error.errno not in passing:
                # It may be known already, so the old ones must stay as they are.
                raise log.stopped(error) from error
            new.remove_files(SWAP, CLEANED)
            raise

    def _write_kept(
        self, new: Segment, group: list[Segment], keeper: Keeper, slice_bytes: int
    ) -> Generator[Job | None, None, None]:
        new.append(b"")
        last: Buffer | None = None  # unless it is kept
        for segment in group:
            for header, batch in self._batches(segment):
                self.read_bytes += header.size
                kept = yield from keeper.kept(header, batch)
                if kept is not None:
                    _write(new, kept)
                last = batch if kept is None else None
                if self._slice_is_over(header.size + BATCH_BYTES, slice_bytes):
                    yield None
                if self._is_overtaken():
                    return
            if self._slice_is_over(SEGMENT_BYTES, slice_bytes):
                yield None
                if self._is_overtaken():
                    return
        if last is not None:  # after a crash, the last batch tells which segments this one takes the place of
            _write(new, empty_batch(last))
        new.aborted.entries.extend(keeper.aborted)
        new.write_indexes()

    def _abandon(self, new: Segment) -> bool:
        """Whether the log has changed so that the new segment is of no use; then it goes."""
        if self._is_overtaken():
            remove_all(self.log.files, new.paths())
            return True
        return False


class Keeper:
    """Decides what of each batch lives on."""

    def __init__(
        self,
        log: Log,
        offsets: dict[bytes, int],
        map_end: int,
        transactions: Transactions,
        now_ms: int,
    ) -> None:
        self.aborted: list[AbortedTransaction] = []
        self._offsets = offsets
        self._map_end = map_end
        self._transactions = transactions
        self._now_ms = now_ms
        self._horizon_ms = min(now_ms + log.config.delete_retention_ms, MOST)  # it goes into a batch
        self._producers = log.producers.by_id
        self._recovery_point = log.recovery_point

    def kept(self, header: BatchHeader, batch: memoryview) -> Keeping:
        """The batch as it is to be written: as it was, with fewer records, with none, or not at all.

        A batch may decompress to gigabytes, so it is looked at in steps; what they yield is as in `Compaction.run`.
        """
        if header.attributes & CONTROL:
            return self._kept_marker(header, batch)
        if header.count == 0 or self._transactions.is_aborted(header):
            return self._nothing(header, batch)
        return (yield from self._kept_data(header, batch))

    def _kept_marker(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """A marker outlives the batches of its transaction by `delete.retention.ms`."""
        if header.count == 0:
            return self._nothing(header, batch)
        was_seen, aborted = self._transactions.end(header)
        if aborted is not None:
            self.aborted.append(aborted)
        if was_seen:
            return batch
        if header.delete_horizon_ms is None:
            return retain_batch(batch, [True], delete_horizon_ms=self._horizon_ms)
        return batch if self._now_ms < header.delete_horizon_ms else self._nothing(header, batch)

    def _kept_data(self, header: BatchHeader, batch: memoryview) -> Keeping:
        kept_count, has_tombstones = 0, False
        for portion in record_portions(batch, header):
            mask, keeps_tombstone = self._mask(header, portion)
            kept_count += mask.count(1)
            has_tombstones |= keeps_tombstone
            if _is_part(portion, header):
                yield None
        if not kept_count:
            return self._nothing(header, batch)
        needs_horizon = has_tombstones and header.delete_horizon_ms is None
        if kept_count == header.count and not needs_horizon:
            return batch
        retained = RetainedBatch(header, self._horizon_ms if needs_horizon else None)
        if not _is_part(portion, header):
            job = retained.add(portion, mask)
            if job is not None:
                yield job
            return retained.finish()
        for portion in record_portions(batch, header):
            # Decided again: what was decided of all the records may be more than should be held.
            yield retained.add(portion, self._mask(header, portion)[0])
        return retained.finish()

    def _mask(self, header: BatchHeader, portion: Portion) -> tuple[bytes, bool]:
        """For each record whether it is kept; and whether one of these is a tombstone that may go in time."""
        base_offset, map_end, latest = header.base_offset, self._map_end, self._offsets.get
        horizon_ms = header.delete_horizon_ms
        keeps_tombstones = horizon_ms is None or self._now_ms < horizon_ms
        has_tombstones = False
        mask = []
        for offset_delta, key, is_tombstone in decode_keys(portion.area, portion.records):
            offset = base_offset + offset_delta
            keep = offset >= map_end or (
                key is not None and offset >= latest(key, -1) and (keeps_tombstones or not is_tombstone)
            )
            mask.append(keep)
            has_tombstones |= keep and is_tombstone and offset < map_end
        return bytes(mask), has_tombstones

    def _nothing(self, header: BatchHeader, batch: memoryview) -> Buffer | None:
        """No record is left. The header stays where it tells what a producer wrote last."""
        return empty_batch(batch) if self._is_last_of_producer(header) else None

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Of what is on the disk: its later batches may be lost."""
        producer = self._producers.get(header.producer_id)
        if producer is None:
            return False
        if not producer.batches:
            return header.is_control and header.producer_epoch == producer.epoch
        safe = [batch.last_offset for batch in producer.batches if batch.last_offset < self._recovery_point]
        return bool(safe) and header.last_offset == safe[-1]


def _write(segment: Segment, batch: Buffer) -> None:
    header = read_header(batch)
    segment.note_batch(segment.append(batch), len(batch), header.last_offset, header.max_timestamp)


def _is_part(portion: Portion, header: BatchHeader) -> bool:
    """Whether there is more of its batch than this, so that others may have a turn before it goes on."""
    return portion.records != header.count
