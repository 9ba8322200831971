"""One partition as this broker keeps it: its log, the machine that decides how far everything is, and who waits.

The machine (machine.py) decides; here its effects are brought about. What is appended goes through its writer
(writer.py). Who waits for an answer (acknowledgements.py), or for records (readers.py), is called at the end of the
round, never by the one who writes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from ottla.log.aborted import AbortedTransaction
from ottla.log.errors import LogError, OffsetOutOfRange
from ottla.log.files import FileRange
from ottla.log.log import Log
from ottla.log.topic_config import TopicConfig
from ottla.replica.acknowledgements import Acknowledgements, Called
from ottla.replica.divergence import divergence_of_consumer, divergence_of_replica
from ottla.replica.errors import (
    DeletionRefused,
    FencedLeaderEpoch,
    NotAcknowledged,
    NotLeader,
    UnknownLeaderEpoch,
)
from ottla.replica.machine import ALL, FOLLOWER, LEADER, Effects, Machine, Role
from ottla.replica.on_disk import OnDisk
from ottla.replica.readers import Bound, Readers, Waiter
from ottla.replica.shell import Shell
from ottla.replica.writer import MOST_GATHERED_BYTES, PartitionWriter
from ottla.wire.errors import ErrorCode
from ottla.wire.parts import Buffer


class Read(NamedTuple):
    """What a fetch of one partition gives."""

    records: FileRange | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction] | None
    diverging: tuple[int, int] | None = None
    is_cut: bool = False  # there is more, and it comes when somebody asks again


class Partition:
    def __init__(self, topic: str, index: int, topic_id: bytes, log: Log, node_id: int, shell: Shell) -> None:
        """It neither leads nor follows before `apply` has told what to do. `node_id`: of this broker."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.name = f"{topic}-{index}"
        self.node_id = node_id
        self.partition_epoch = -1  # of what was last applied
        self.replicas: list[int] = []
        self.in_sync: list[int] = []
        self.eligible: list[int] = []
        self.leader_id = self.leader_epoch = -1
        self.is_failed = False  # its disk did: it neither leads nor follows until it is opened again
        self._shell = shell
        self.is_touched = False
        self._on_disk = OnDisk(shell)
        self.writer = PartitionWriter(self)
        self.written_bytes = 0  # since the start
        self.acknowledgements = Acknowledgements(self)
        self.wait = self.acknowledgements.wait
        self.readers = Readers(self)
        self._wakes_all = False  # at the end of the round
        self.machine = Machine(
            node_id,
            start_offset=log.log_start_offset,
            end_offset=log.end_offset,
            disk_offset=log.recovery_point,
            high_watermark=log.high_watermark,
        )
        self._configured()
        self._tell_log()  # transactions may be open since before the start

    def __repr__(self) -> str:
        return f"<Partition {self.name}, epoch {self.leader_epoch}>"

    def check_epoch(self, epoch: int) -> None:
        """Refuse a request from who knows another leader than this one; -1 knows none."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"epoch {epoch} is behind {self.leader_epoch} of {self.name}")
        raise UnknownLeaderEpoch(f"epoch {epoch} is ahead of {self.leader_epoch} of {self.name}")

    # Roles

    @property
    def is_leader(self) -> bool:
        return self.machine.role is LEADER

    @property
    def is_follower(self) -> bool:
        return self.machine.role is FOLLOWER

    @property
    def is_replicated(self) -> bool:
        """Whether it is led here and there are other replicas."""
        return bool(self.machine.followers)

    @property
    def may_be_replaced(self) -> bool:
        """Whether another may lead by now: this broker cannot know what was written since."""
        return self.is_replicated and self._shell.is_cut_off_from(self.machine.in_sync - {self.machine.node_id})

    def apply(
        self,
        *,
        leader_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Sequence[int],
        in_sync: Collection[int],
        now_ms: int,
        eligible: Collection[int] = (),
    ) -> None:
        """Be what the controller has decided. What was applied already, or comes late, changes nothing."""
        if partition_epoch <= self.partition_epoch:
            return
        machine = self.machine
        before = machine.role, self.leader_id, self.leader_epoch
        self.partition_epoch = partition_epoch
        is_here = self.node_id in replicas and not self.is_failed
        if leader_id == self.node_id and is_here:
            self._lead(leader_epoch, replicas, in_sync, now_ms)
        elif leader_id >= 0 and is_here:
            self._follow(leader_id, leader_epoch)
        else:
            self._stop()
        self.replicas, self.in_sync, self.eligible = list(replicas), list(in_sync), list(eligible)
        self.leader_id, self.leader_epoch = leader_id, leader_epoch
        if (machine.role, leader_id, leader_epoch) != before:
            self._shell.role_changed(self)

    def _lead(self, leader_epoch: int, replicas: Sequence[int], in_sync: Collection[int], now_ms: int) -> None:
        machine = self.machine
        self.writer.write_gathered()  # in the epoch that it came in
        if machine.role is LEADER and leader_epoch == self.leader_epoch:
            self._bring_about(machine.in_sync_set(leader_epoch, in_sync, replicas, now_ms))
            if machine.is_under_min_in_sync and self.acknowledgements.for_commit:
                self._refuse_unacknowledged()
        else:
            self._bring_about(machine.lead(leader_epoch, replicas, in_sync, now_ms))
        self._advance()

    def _refuse_unacknowledged(self) -> None:
        """What waits for replicas that are gone now may wait for long: its producers shall know why."""
        missing = f"{self.name} has too few replicas in sync"
        failure = NotAcknowledged(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, missing)
        self.acknowledgements.fail_commits(failure, self.machine.high_watermark)
        if not self.is_touched:
            self.touch()

    def _follow(self, leader_id: int, leader_epoch: int) -> None:
        machine = self.machine
        if machine.role is FOLLOWER and leader_epoch == machine.epoch:
            return
        self._bring_about(machine.follow(leader_id, leader_epoch))
        self._end_waits()

    def _stop(self) -> None:
        if self.machine.role is not Role.OFFLINE:
            self._bring_about(self.machine.stop())
            self._end_waits()

    def go_offline(self) -> None:
        """The disk of its log failed."""
        self.is_failed = True
        if self.machine.role is not Role.OFFLINE:
            self.acknowledgements.fail(self.log.refusal, -1)
            self._stop()
            self._shell.role_changed(self)

    def _end_waits(self) -> None:
        """What a follower waited for may be cut under the next leader."""
        if self.acknowledgements:
            self.acknowledgements.fail(NotLeader(f"{self.name} is in another epoch now"), -1)
            if not self.is_touched:
                self.touch()

    def follower_at(
        self, replica: int, epoch: int, offset: int, now_ms: int, broker_epoch: int = -1, start_offset: int = -1
    ) -> ErrorCode | None:
        """A follower has all from its start up to an offset; why that does not count, if it does not."""
        effects = self.machine.follower_at(replica, epoch, offset, now_ms, broker_epoch, start_offset)
        self._bring_about(effects)
        return effects.refusal

    def follower_waits(self, replica: int, now_ms: int, broker_epoch: int) -> None:
        """A follower waits for what comes behind what it has."""
        self._bring_about(self.machine.follower_waits(replica, now_ms, broker_epoch))

    def look_at_followers(self) -> None:
        """Have those who wait and are not in sync say so: nothing else may happen for long."""
        if self.machine.lacks_followers:
            self.readers.look()

    def all_start_at(self, offset: int) -> bool:
        """Whether all replicas that are in sync have let go of what lies before an offset."""
        followers = self.machine.followers
        return all(followers[each].start_offset >= offset for each in self.machine.in_sync if each in followers)

    def look_at_lag(self, now_ms: int, most_lag_ms: int) -> None:
        """Propose to go on without those who have been behind for so long."""
        self._bring_about(self.machine.lag(now_ms, most_lag_ms))

    def withdraw_proposal(self) -> None:
        """The controller does not want the in-sync set that was proposed."""
        self._bring_about(self.machine.withdrawn())

    def _bring_about(self, effects: Effects) -> None:
        """What follows from an event that is no append."""
        if effects.loses:
            self._lose()
        if effects.advances:
            self._advanced()
        if effects.syncs and not self.is_touched:
            self.touch()  # the end of the round asks for the disk
        if effects.proposes is not None:
            self._shell.propose(self, effects.proposes)

    def _lose(self) -> None:
        """It leads no more. What was gathered is not written: who sent it is told, and asks the next leader."""
        self.writer.discard()
        self.acknowledgements.fail(NotLeader(f"{self.name} is not led here any more"), -1)
        self._wakes_all = True
        if not self.is_touched:
            self.touch()

    def _advanced(self) -> None:
        """The high watermark or another bound has moved, though nothing was appended here."""
        self._tell_log()
        if (self.readers.waiting or self.acknowledgements) and not self.is_touched:
            self.touch()

    @property
    def knows_high_watermark(self) -> bool:
        """Whether a leader's high watermark is as high as any earlier leader's may have been (KIP-207)."""
        return self.machine.high_watermark >= self.machine.epoch_start_offset

    def check_leader(self) -> None:
        """Refuse what only the leader may do."""
        if self.is_failed:
            raise self.log.refusal
        if self.machine.role is not LEADER:
            raise NotLeader(f"{self.name} is not led here")

    # How far everything is

    def replace_log(self, log: Log) -> None:
        """Go on with a log that has all that the one before has, in another place. Nothing is gathered."""
        assert not self.writer.is_gathering
        log.place(self.log.placement)
        self.log = log
        self._configured()

    def grown(self, added_bytes: int) -> None:
        self.written_bytes += added_bytes
        self._advance()
        if not self.is_touched:
            self.touch()

    def touch(self) -> None:
        self.is_touched = True
        self._shell.touch(self)

    def _advance(self) -> None:
        """Let the machine know of the log, and the log of what was decided."""
        log, machine = self.log, self.machine
        if log.config is not self._config:
            self._configured()
        machine.appended(log.end_offset)
        self._tell_log()

    def _tell_log(self) -> None:
        """Let the log know of the high watermark, and the machine of the transactions that it decides."""
        log, machine = self.log, self.machine
        log.advance_high_watermark(machine.high_watermark)
        producers = log.producers
        if machine.unstable_offset is not None or producers.ongoing or producers.unreplicated:
            machine.transactions_from(log.producers.first_unstable_offset)

    def reconfigure(self, config: TopicConfig) -> None:
        """Obey other settings of the topic from now on."""
        if self.log.config is not config:
            self.log.reconfigure(config)
            self._bring_about(self._configured())

    def _configured(self) -> Effects:
        """Obey the settings of the log."""
        config = self._config = self.log.config
        unsynced_records = self._on_disk.configure(config)
        self.writer.most_gathered_bytes = min(MOST_GATHERED_BYTES, config.segment_bytes)
        return self.machine.durability(unsynced_records, config.min_insync_replicas)

    def is_committed(self, end_offset: int) -> bool:
        """Whether all below an offset is kept as the replicas and the durability ask."""
        return self._committed() >= end_offset

    def _committed(self) -> int:
        self._look_at_disk()
        return self.machine.committed

    def _look_at_disk(self) -> None:
        """Let the machine know of the settings and the disk as they are now: housekeeping syncs, too."""
        machine, log = self.machine, self.log
        if log.config is not self._config:
            self._configured()
        if self._on_disk.is_asked and machine.disk_offset < log.recovery_point:
            self._bring_about(machine.on_disk(log.recovery_point))

    def when_committed(self, end_offset: int, done: Callable[[LogError | None], None]) -> None:
        """Call back when what was appended below `end_offset` is committed, or cannot be: at once if it is."""
        if self.is_committed(end_offset):
            done(None)
        else:
            self.wait(end_offset, ALL, Called(done), None)

    @property
    def is_written(self) -> bool:
        """Whether all that the log has is kept as the durability asks; a follower tells of nothing before."""
        self._look_at_disk()
        return self.machine.written >= self.log.end_offset

    def when_written(self, done: Callable[[LogError | None], None]) -> None:
        """Call back at the end of a round: all that the log has now is kept as the durability asks, or cannot be."""
        self.wait(self.log.end_offset, 1, Called(done), None)

    def synced(self, failure: LogError | None) -> None:
        """The log was brought to the disk, or could not be."""
        self._on_disk.synced(failure)
        if failure is not None:
            self.acknowledgements.fail(failure, 0)
        if not self.is_touched:
            self.touch()

    def expire(self, now: float) -> bool:
        """Tell those whose time is over; whether others wait for replicas still."""
        failure = NotAcknowledged(ErrorCode.REQUEST_TIMED_OUT, f"the replicas of {self.name} take too long")
        if self.acknowledgements.expire(now, self.machine.committed, failure) and not self.is_touched:
            self.touch()
        return bool(self.acknowledgements.for_commit)

    def end_round(self) -> None:
        """Write what was gathered, ask for the disk if need be, and tell those who wait."""
        try:
            self.writer.write_gathered()
        finally:
            self._look_at_disk()
            self.is_touched = False
            self._tell()

    def _tell(self) -> None:
        machine = self.machine
        if self._on_disk.is_asked:
            self._on_disk.ask(self)
        self.acknowledgements.tell(machine.written, machine.committed)
        if machine.followers and self.acknowledgements.for_commit:
            self._shell.watch_deadlines(self)
        if self._wakes_all:
            self._wakes_all = False
            self.readers.wake()
        elif self.readers.waiting:
            self.readers.tell()

    def delete_records(self, offset: int, now_ms: int) -> int:
        """Let the partition start at `offset` (-1: the high watermark); its new start."""
        self.check_leader()
        if not self.log.config.is_deleted:
            raise DeletionRefused(f"{self.name} is compacted, and keeps what it keeps")
        target = self.machine.high_watermark if offset == -1 else offset
        if target < 0:
            raise OffsetOutOfRange(f"offset {offset} cannot be the start of {self.name}")
        self.log.advance_log_start(target)
        self.machine.starts_at(self.log.log_start_offset)
        self.readers.tell_replicas_again()
        if self.machine.followers and not self.is_touched:
            self.touch()
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
        log, machine = self.log, self.machine
        if machine.start_offset < log.log_start_offset:
            machine.starts_at(log.log_start_offset)  # housekeeping deletes
        high_watermark, stable = machine.high_watermark, machine.last_stable_offset
        bound = stable if committed_only else high_watermark
        if last_fetched_epoch >= 0:
            end_of_epoch = self.end_of_epoch(last_fetched_epoch)
            diverging = divergence_of_consumer(end_of_epoch, self.name, offset, last_fetched_epoch)
            if diverging is not None:
                return Read(None, high_watermark, stable, log.log_start_offset, None, diverging)
        aborted, uncut = None, bound
        if committed_only:
            bound = log.segments.bound_by_aborts(offset, bound)
        records = log.read(offset, max_bytes, bound, whole_batch=whole_batch)
        if committed_only:
            aborted = log.aborted_within(records, offset, bound) if records is not None else []
        return Read(records, high_watermark, stable, log.log_start_offset, aborted, is_cut=bound < uncut)

    def read_for_replica(
        self, offset: int, max_bytes: int, last_fetched_epoch: int, *, whole_batch: bool = True
    ) -> Read:
        """What another replica is to have from `offset` on, or where its log parts from this one."""
        log, machine = self.log, self.machine
        bounds = machine.high_watermark, machine.last_stable_offset, log.log_start_offset
        diverging = divergence_of_replica(log, offset, last_fetched_epoch)
        if diverging is not None:
            return Read(None, *bounds, None, diverging)
        return Read(log.read(offset, max_bytes, log.end_offset, whole_batch=whole_batch), *bounds, None)

    # Following

    @property
    def fetch_position(self) -> tuple[int, int]:
        """Where a follower goes on, and the epoch of what lies before."""
        return self.log.end_offset, self.log.epochs.latest

    def copy(self, records: Buffer, leader_epoch: int, high_watermark: int, log_start_offset: int, now_ms: int) -> int:
        """Append what the leader of an epoch gave, or the first of it, and go as far as it says; how many bytes."""
        log, machine = self.log, self.machine
        if machine.role is not FOLLOWER or leader_epoch != self.leader_epoch:
            raise NotLeader(f"{self.name} does not follow in epoch {leader_epoch}")
        taken = 0
        try:
            if records:
                taken = log.append_replicated(memoryview(records), now_ms, leader_epoch)
                self.written_bytes += taken
        finally:
            self._bring_about(machine.copied(log.end_offset, high_watermark))
            self._tell_log()
        if self._on_disk.is_asked and records and not self.is_touched:
            self.touch()
        if log_start_offset > log.log_start_offset:
            log.advance_log_start(min(log_start_offset, machine.high_watermark))
            machine.starts_at(log.log_start_offset)
        return taken

    def truncate(self, offset: int, now_ms: int) -> None:
        """Let go of what the leader does not have. `Log.cut` is not on the disk yet."""
        try:
            self.log.cut_to(offset, now_ms)
        finally:
            self._cut()

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Let go of everything, and go on where the leader's log starts. `Log.cut` is not on the disk yet."""
        try:
            self.log.cut_fully(offset, now_ms)
        finally:
            self._cut()

    def _cut(self) -> None:
        log, machine = self.log, self.machine
        machine.truncated(log.end_offset)
        machine.starts_at(log.log_start_offset)
        self._tell_log()
        self._wakes_all = True  # some may read what is gone
        if self.readers.waiting and not self.is_touched:
            self.touch()

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to the one given in which records were written, and the offset where it ended."""
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        latest = self.log.epochs.latest
        if latest < epoch < self.leader_epoch and (self.is_leader or latest < 0):
            # Where this epoch began, and nothing was written since. A follower may still get some of that.
            return epoch if latest < 0 else latest, self.log.end_offset
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    def wait_for_records(self, waiter: Waiter, bound: Bound = Bound.HIGH_WATERMARK, replica: int = -1) -> None:
        """Be told of what is added below a bound. `replica`: that waits."""
        self.readers.add(waiter, bound, replica)

    def stop_waiting(self, waiter: Waiter) -> None:
        self.readers.waiting.pop(waiter, None)

    def wake_all(self) -> None:
        """Let everybody look again, as when the partition goes away."""
        self.readers.wake()
