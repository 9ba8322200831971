"""One partition as its leader keeps it: the log, who may read how far, and who waits for more.

With one replica the high watermark follows the end of the log at once. Nothing here does I/O but the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ottla.log.aborted import AbortedTransaction
from ottla.log.epochs import UNDEFINED
from ottla.log.errors import LogError, OffsetOutOfRange
from ottla.log.files import FileRange
from ottla.log.log import Appended, Log
from ottla.log.producers import Origin
from ottla.records.batch import BatchHeader
from ottla.records.large import ValidateSteps, validate_large
from ottla.records.validate import LargeBatch, Validated, validate_produce
from ottla.wire.errors import ErrorCode
from ottla.wire.parts import Buffer

MOST_BYTES = 1 << 62
FIRST_VERSION_WITH_TRANSACTIONS_2 = 12


class FencedLeaderEpoch(LogError):
    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpoch(LogError):
    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class DeletionRefused(LogError):
    code = ErrorCode.POLICY_VIOLATION


class Waiter(Protocol):
    """Somebody who waits for a partition to move on."""

    def advanced(self, partition: Partition, added_bytes: int) -> None: ...


class Read(NamedTuple):
    """What a fetch of one partition gives."""

    records: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None
    diverging: tuple[int, int] | None = None


class Partition:
    def __init__(
        self, topic: str, index: int, topic_id: bytes, log: Log, replicas: list[int], leader_epoch: int
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.name = f"{topic}-{index}"
        self.replicas = replicas
        self.in_sync = list(replicas)
        self.leader_id = replicas[0]
        self.leader_epoch = leader_epoch
        self._waiters: dict[Waiter, None] = {}
        self._committed_waiters: dict[Waiter, None] = {}  # who waits for what no open transaction holds back
        self._told_offset = 0  # up to which those were told
        log.advance_high_watermark(log.end_offset)

    def __repr__(self) -> str:
        return f"<Partition {self.name}, epoch {self.leader_epoch}>"

    def check_epoch(self, epoch: int) -> None:
        """Refuse a request from who knows another leader than this one; -1 knows none."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {epoch} is behind {self.leader_epoch} of {self.name}")
        raise UnknownLeaderEpoch(f"epoch {epoch} is ahead of {self.leader_epoch} of {self.name}")

    # Writing

    def produce(
        self, records: Buffer | None, *, version: int, has_transactional_id: bool, now_ms: int
    ) -> tuple[Appended, int]:
        """Check and append what a client sent; where it went, and the time it was stamped with (-1: none).

        LargeBatch where the check takes more than a moment: `produce_large` goes on with it.
        """
        validated = validate_produce(
            records,
            self.log.produce_settings,
            partition=self.name,
            version=version,
            has_transactional_id=has_transactional_id,
            now_ms=now_ms,
        )
        return self.append_validated(validated, version, now_ms)

    def validate_large(self, large: LargeBatch, now_ms: int) -> ValidateSteps:
        """The check in steps, for a batch that was found to be large; `append_validated` is what is left then."""
        return validate_large(large, self.log.produce_settings, partition=self.name, now_ms=now_ms)

    def append_validated(self, validated: Validated, version: int, now_ms: int) -> tuple[Appended, int]:
        appended = self.log.append(
            validated.batch,
            validated.header,
            self.leader_epoch,
            now_ms,
            new_epoch_starts_at_zero=version >= FIRST_VERSION_WITH_TRANSACTIONS_2 and validated.header.is_transactional,
        )
        if appended.duplicate:
            return appended, appended.max_timestamp  # as Kafka answers, whoever stamped it
        self._grown(len(validated.batch))
        return appended, validated.log_append_time

    def produce_all(self, batches: Sequence[tuple[memoryview, BatchHeader]], now_ms: int) -> int:
        """Append batches that `plain_batch` found good and that have no producer id; the offset of the first."""
        base_offset = self.log.append_all(batches, self.leader_epoch, now_ms)
        self._grown(sum([len(batch) for batch, _ in batches]))
        return base_offset

    def append(
        self,
        batch: bytearray,
        header: BatchHeader,
        now_ms: int,
        *,
        origin: Origin = Origin.CLIENT,
        transaction_version: int = 0,
    ) -> Appended:
        """Append a batch that was made here: a coordinator's records, or the end of a transaction."""
        appended = self.log.append(
            batch, header, self.leader_epoch, now_ms, origin=origin, transaction_version=transaction_version
        )
        self._grown(len(batch))
        return appended

    def _grown(self, added_bytes: int) -> None:
        log = self.log
        before = log.high_watermark
        log.advance_high_watermark(log.end_offset)
        if self._waiters:
            for waiter in list(self._waiters):
                waiter.advanced(self, added_bytes)
        if self._committed_waiters:
            stable = log.last_stable_offset
            if stable > self._told_offset:
                if self._told_offset < before or stable < log.high_watermark:
                    start = max(self._told_offset, log.log_start_offset)
                    found = log.read(start, MOST_BYTES, stable) if start < stable else None
                    added_bytes = 0 if found is None else found.size_bytes
                self._told_offset = stable
                for waiter in list(self._committed_waiters):
                    waiter.advanced(self, added_bytes)

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Let the partition start at `offset` (-1: the high watermark); its new start."""
        if not self.log.config.is_deleted:
            raise DeletionRefused(f"{self.name} is compacted, and keeps what it keeps")
        target = self.log.high_watermark if offset == -1 else offset
        if target < 0:
            raise OffsetOutOfRange(f"offset {offset} cannot be the start of {self.name}")
        self.log.advance_log_start(target)
        return self.log.log_start_offset

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        committed_only: bool,
        last_fetched_epoch: int = -1,
        whole_batch: bool = True,
    ) -> Read:
        """What a consumer may see from `offset` on."""
        log = self.log
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        bound = stable if committed_only else high_watermark
        if last_fetched_epoch >= 0:
            diverging = self._divergence(offset, last_fetched_epoch)
            if diverging is not None:
                return Read(None, high_watermark, stable, log.log_start_offset, None, diverging)
        records = log.read(offset, max_bytes, bound, whole_batch=whole_batch)
        aborted = None
        if committed_only:
            aborted = log.aborted_within(records, offset, bound) if records is not None else []
        return Read(records, high_watermark, stable, log.log_start_offset, aborted)

    def _divergence(self, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where the reader's log and this one part, if they do (KIP-595)."""
        epoch, end_offset = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.end_offset)
        if (epoch, end_offset) == UNDEFINED:
            raise OffsetOutOfRange(f"epoch {last_fetched_epoch} is not known in {self.name}")
        if epoch < last_fetched_epoch or end_offset < offset:
            return epoch, end_offset
        return None

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to the one given in which records were written, and the offset where it ended."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        if not self.log.epochs.entries and -1 != epoch < self.leader_epoch:
            return epoch, self.log.end_offset  # where this epoch began, and nothing was written since
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    def wait(self, waiter: Waiter, *, committed_only: bool = False) -> None:
        """Be told of what is added; `committed_only`: once it is below the last stable offset."""
        if not committed_only:
            self._waiters[waiter] = None
            return
        if not self._committed_waiters:
            self._told_offset = self.log.last_stable_offset
        self._committed_waiters[waiter] = None

    def stop_waiting(self, waiter: Waiter) -> None:
        self._waiters.pop(waiter, None)
        self._committed_waiters.pop(waiter, None)

    def wake_all(self) -> None:
        """Let everybody look again, as when the partition goes away."""
        for waiter in [*self._waiters, *self._committed_waiters]:
            waiter.advanced(self, MOST_BYTES)
