"""What is true of one replica of a partition: its role, and up to where records are written, committed and stable.

A machine without I/O. Events come in as calls, and each returns the effects that the shell (partition.py) brings about.
Which event is allowed in which role is in TRANSITIONS; whatever is not there is refused and changes nothing.

    written             an append with acks 1 is answered up to here
    high watermark      all in-sync replicas have what is below it: consumers may read that
    last stable offset  and no transaction is open below it
    committed           an append with acks -1 is answered up to here

Where the durability asks for the disk, all of them wait for it: a record that is not on the leader's own disk is
neither acknowledged nor read. So a replica that takes over shows nothing that the old leader may lack after a power
failure.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from ottla.log.producers import stable_offset
from ottla.wire.errors import ErrorCode

UNLIMITED: Final = 1 << 62
UNKNOWN_OFFSET: Final = -1
ALL: Final = -1  # acks


class Role(enum.Enum):
    OFFLINE = "offline"
    LEADER = "leader"
    FOLLOWER = "follower"


# An enum's member takes a while to be looked up.
LEADER: Final = Role.LEADER
FOLLOWER: Final = Role.FOLLOWER


class Event(enum.Enum):
    """What a machine is told."""

    LEAD = "lead in an epoch"
    FOLLOW = "follow a leader in an epoch"
    STOP = "neither lead nor follow"
    APPEND = "append batches"
    WRITTEN = "batches were written"
    COPIED = "batches of the leader were written"
    ON_DISK = "the disk holds all up to an offset"
    FOLLOWER_AT = "a follower is at an offset"
    FOLLOWER_WAITS = "a follower waits where it was"
    LAG = "look for followers that are behind"
    IN_SYNC = "these replicas are in sync now"
    WITHDRAWN = "a proposal was refused"
    TRANSACTIONS = "the first open transaction begins at an offset"
    DURABILITY = "what is asked of a record before it is acknowledged"
    TRUNCATED = "the log was cut"
    STARTS_AT = "the log starts later"


_ANYWHERE = (Event.ON_DISK, Event.TRANSACTIONS, Event.DURABILITY, Event.TRUNCATED, Event.STARTS_AT)
TRANSITIONS: Final[dict[tuple[Role, Event], Role]] = {
    **{(role, Event.LEAD): Role.LEADER for role in Role},
    **{(role, Event.FOLLOW): Role.FOLLOWER for role in Role},
    **{(role, event): role for role in Role for event in _ANYWHERE},
    **{(role, Event.STOP): Role.OFFLINE for role in Role},
    (Role.LEADER, Event.APPEND): Role.LEADER,
    (Role.LEADER, Event.WRITTEN): Role.LEADER,
    (Role.LEADER, Event.FOLLOWER_AT): Role.LEADER,
    (Role.LEADER, Event.FOLLOWER_WAITS): Role.LEADER,
    (Role.LEADER, Event.LAG): Role.LEADER,
    (Role.LEADER, Event.IN_SYNC): Role.LEADER,
    (Role.LEADER, Event.WITHDRAWN): Role.LEADER,
    (Role.FOLLOWER, Event.COPIED): Role.FOLLOWER,
}


class Effects(NamedTuple):
    """What follows from an event, for the shell to bring about."""

    advances: bool = False  # written, committed, the high watermark or the last stable offset moved: wake who waits
    syncs: bool = False  # somebody waits for the disk
    loses: bool = False  # it leads no more: who waits for an answer is refused
    proposes: frozenset[int] | None = None  # an in-sync set for the controller to decide on
    refusal: ErrorCode | None = None


NOTHING: Final = Effects()
ADVANCES: Final = Effects(advances=True)
NOT_LEADER: Final = Effects(refusal=ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Follower:
    """What the leader knows of another replica."""

    __slots__ = ("broker_epoch", "caught_up_ms", "end_offset", "fetched_ms", "leader_end_offset", "start_offset")

    def __init__(self, now_ms: int) -> None:
        self.broker_epoch = -1  # it is another after each start of that broker
        self.start_offset = UNKNOWN_OFFSET
        self.end_offset = UNKNOWN_OFFSET
        self.caught_up_ms = now_ms  # when it last had all there was
        self.fetched_ms = now_ms  # when it last asked, and where the leader's log ended then
        self.leader_end_offset = UNKNOWN_OFFSET

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.leader_end_offset != UNKNOWN_OFFSET and offset >= self.leader_end_offset:
            self.caught_up_ms = self.fetched_ms  # a busy leader is never caught up with, only followed
        self.end_offset, self.leader_end_offset, self.fetched_ms = offset, leader_end_offset, now_ms


class Machine:
    __slots__ = (
        "committed",
        "disk_offset",
        "end_offset",
        "epoch",
        "epoch_start_offset",
        "followers",
        "high_watermark",
        "in_sync",
        "last_stable_offset",
        "leader_id",
        "min_in_sync",
        "node_id",
        "proposed",
        "replicas",
        "role",
        "start_offset",
        "unstable_offset",
        "unsynced_records",
        "written",
    )

    def __init__(
        self, node_id: int, *, start_offset: int = 0, end_offset: int = 0, disk_offset: int = 0, high_watermark: int = 0
    ) -> None:
        self.node_id = node_id
        self.role = Role.OFFLINE
        self.epoch = -1
        self.leader_id = -1
        self.replicas: tuple[int, ...] = ()
        self.in_sync: frozenset[int] = frozenset()
        self.proposed: frozenset[int] | None = None  # an in-sync set that the controller has not decided on
        self.followers: dict[int, Follower] = {}
        self.min_in_sync = 1
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.epoch_start_offset = end_offset  # where the log ended when this replica became the leader
        self.disk_offset = disk_offset
        self.unsynced_records = UNLIMITED  # so many may be acknowledged before they are on the disk
        self.unstable_offset: int | None = None  # where the first open transaction begins
        self.high_watermark = max(start_offset, min(high_watermark, end_offset))
        self.last_stable_offset = self.high_watermark
        self.written = self.committed = 0
        self._decide()

    def __repr__(self) -> str:
        return f"<Machine {self.role.value} in epoch {self.epoch}, {self.high_watermark} of {self.end_offset}>"

    # Roles

    def lead(self, epoch: int, replicas: Iterable[int], in_sync: Collection[int], now_ms: int = 0) -> Effects:
        if self._is_stale(epoch):
            return Effects(refusal=ErrorCode.FENCED_LEADER_EPOCH)
        self.role, self.epoch, self.leader_id = LEADER, epoch, self.node_id
        self.replicas, self.proposed = tuple(replicas), None
        self.in_sync = frozenset(in_sync).intersection(self.replicas)
        self.followers = {replica: Follower(now_ms) for replica in self.replicas if replica != self.node_id}
        self.epoch_start_offset = self.end_offset
        return self._moved()

    def follow(self, leader_id: int, epoch: int) -> Effects:
        if self._is_stale(epoch):
            return Effects(refusal=ErrorCode.FENCED_LEADER_EPOCH)
        lost = self._leave()
        self.role, self.epoch, self.leader_id = FOLLOWER, epoch, leader_id
        return lost

    def stop(self) -> Effects:
        """As when the partition is deleted, or its disk fails."""
        lost = self._leave()
        self.role, self.leader_id = Role.OFFLINE, -1
        return lost

    def _is_stale(self, epoch: int) -> bool:
        """A role is taken once in an epoch; only one that was stopped may take its epoch up again."""
        return epoch < self.epoch or (epoch == self.epoch and self.role is not Role.OFFLINE)

    def _leave(self) -> Effects:
        was_leader = self.role is LEADER
        self.in_sync, self.proposed, self.followers = frozenset(), None, {}
        return Effects(loses=was_leader)

    # Writing

    def may_append(self, acks: int) -> ErrorCode | None:
        """Why batches may not be appended now; None if they may."""
        if self.role is not LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks == ALL and self.is_under_min_in_sync:
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return None

    @property
    def is_under_min_in_sync(self) -> bool:
        """A topic with fewer replicas than it wants in sync is content with those it has, as with Kafka."""
        return len(self.in_sync) < min(self.min_in_sync, len(self.replicas))

    def appended(self, end_offset: int) -> Effects:
        """Batches were written, and the log ends here now."""
        if self.role is not LEADER:
            return NOT_LEADER
        self.end_offset = end_offset
        if self.followers or self.unstable_offset is not None or self.unsynced_records < UNLIMITED:
            return self._moved()
        if end_offset == self.high_watermark:
            return NOTHING
        # The usual case, alone and without anything that holds back, costs a quarter of the other.
        self.high_watermark = self.last_stable_offset = self.written = self.committed = end_offset
        return ADVANCES

    def copied(self, end_offset: int, leader_high_watermark: int) -> Effects:
        """A follower has written what it fetched, and was told how far the leader is."""
        if self.role is not FOLLOWER:
            return NOT_LEADER
        self.end_offset = end_offset
        return self._moved(min(leader_high_watermark, end_offset))

    def transactions_from(self, unstable_offset: int | None) -> Effects:
        """The first transaction that is open, or whose end is not below the high watermark, begins here."""
        self.unstable_offset = unstable_offset
        return self._moved(self.high_watermark)

    def truncated(self, end_offset: int) -> Effects:
        """The log was cut: it ends here."""
        self.end_offset = end_offset
        self.disk_offset = min(self.disk_offset, end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        self._decide()
        return ADVANCES

    def starts_at(self, start_offset: int) -> Effects:
        """Records before this offset were deleted."""
        self.start_offset = start_offset
        self.end_offset = max(self.end_offset, start_offset)
        return self._moved(max(self.high_watermark, start_offset))

    # The disk

    def durability(self, unsynced_records: int, min_in_sync: int) -> Effects:
        """From now on so many records may be acknowledged before they are on the disk (UNLIMITED: it is not asked),
        and acks -1 takes so many replicas in sync."""
        self.unsynced_records, self.min_in_sync = unsynced_records, min_in_sync
        return self._moved()

    def on_disk(self, offset: int) -> Effects:
        self.disk_offset = max(self.disk_offset, min(offset, self.end_offset))
        return self._moved()

    # Followers

    def follower_at(
        self, replica: int, epoch: int, offset: int, now_ms: int, broker_epoch: int = -1, start_offset: int = -1
    ) -> Effects:
        """A follower asks for what comes at `offset`: it has all that lies before.

        `broker_epoch`: of its broker, which counts from -1 (it does not say). What comes late from before a restart
        of that broker tells nothing of what it has now.
        """
        refusal = self._refuses(replica, epoch, offset)
        if refusal is not None:
            return Effects(refusal=refusal)
        follower = self.followers[replica]
        if broker_epoch < follower.broker_epoch:
            return NOT_LEADER
        follower.broker_epoch, follower.start_offset = broker_epoch, start_offset
        follower.fetched(offset, self.end_offset, now_ms)
        return self._joined(replica, self._moved())

    def follower_waits(self, replica: int, now_ms: int, broker_epoch: int = -1) -> Effects:
        """A follower has waited up to now for what comes at the offset that it told last.

        Nothing may come for long: so this is when one joins whose proposal was refused, or came beside another's.
        """
        follower = self.followers.get(replica)
        if follower is None or broker_epoch < follower.broker_epoch:
            return NOT_LEADER
        follower.broker_epoch = broker_epoch
        if follower.end_offset >= follower.leader_end_offset:
            follower.caught_up_ms = follower.fetched_ms = now_ms
            follower.leader_end_offset = self.end_offset
        return self._joined(replica, NOTHING)

    def _joined(self, replica: int, effects: Effects) -> Effects:
        """Propose one that has caught up."""
        if not self._may_join(replica, self.followers[replica].end_offset):
            return effects
        self.proposed = self.in_sync | {replica}
        return effects._replace(proposes=self.proposed)

    @property
    def lacks_followers(self) -> bool:
        """Whether somebody is not in sync, and nothing is proposed."""
        return self.proposed is None and not self.followers.keys() <= self.in_sync

    def _refuses(self, replica: int, epoch: int, offset: int) -> ErrorCode | None:
        if self.role is not LEADER:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if epoch != self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        if replica not in self.followers:
            return ErrorCode.UNKNOWN_LEADER_EPOCH  # another assignment is on its way to one of the two
        if not 0 <= offset <= self.end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return None

    def _may_join(self, replica: int, offset: int) -> bool:
        """It has all that is committed, and all that was there when this epoch began: nothing is lost if it leads."""
        is_caught_up = offset >= self.high_watermark and offset >= self.epoch_start_offset
        return is_caught_up and replica not in self.in_sync and self.proposed is None

    def lag(self, now_ms: int, most_lag_ms: int) -> Effects:
        """Propose an in-sync set without those that have been behind for so long."""
        if self.role is not LEADER:
            return NOT_LEADER
        for follower in self.followers.values():
            if follower.end_offset >= self.end_offset:
                follower.caught_up_ms = now_ms  # it need not ask again for what is not there
        behind = {
            replica
            for replica, follower in self.followers.items()
            if follower.end_offset < self.end_offset and now_ms - follower.caught_up_ms > most_lag_ms
        }
        if self.proposed is not None or not behind & self.in_sync:
            return NOTHING
        self.proposed = self.in_sync - behind
        return Effects(proposes=self.proposed)

    def in_sync_set(
        self, epoch: int, in_sync: Collection[int], replicas: Iterable[int] | None = None, now_ms: int = 0
    ) -> Effects:
        """The controller has decided who is in sync, whoever asked for it, and maybe which replicas there are."""
        if self.role is not LEADER:
            return NOT_LEADER
        if epoch != self.epoch:
            return Effects(refusal=ErrorCode.FENCED_LEADER_EPOCH)
        if replicas is not None:
            self.replicas = tuple(replicas)
            others = [replica for replica in self.replicas if replica != self.node_id]
            self.followers = {replica: self.followers.get(replica) or Follower(now_ms) for replica in others}
        self.in_sync, self.proposed = frozenset(in_sync).intersection(self.replicas), None
        return self._moved()

    def withdrawn(self) -> Effects:
        """The controller has refused what was proposed, and will not decide for it any more."""
        if self.role is not LEADER:
            return NOT_LEADER
        self.proposed = None
        return self._moved()

    # How far everything is

    def _moved(self, high_watermark: int | None = None) -> Effects:
        before = (self.written, self.committed, self.high_watermark, self.last_stable_offset)
        if high_watermark is not None:
            self.high_watermark = max(self.high_watermark, high_watermark)
        elif self.role is LEADER:
            self._replicated()
        self._decide()
        after = (self.written, self.committed, self.high_watermark, self.last_stable_offset)
        syncs = self.end_offset - self.disk_offset > self.unsynced_records
        if syncs:
            return Effects(advances=before != after, syncs=True)
        return NOTHING if before == after else ADVANCES

    def _replicated(self) -> None:
        """Move the high watermark to what all have that may have to lead.

        One that is only proposed counts already: the controller may have decided for it, and it may lead next.
        """
        offset = min(self.end_offset, self.disk_offset + self.unsynced_records)
        if self.followers:
            if self.is_under_min_in_sync:
                return
            counting = self.in_sync if self.proposed is None else self.in_sync | self.proposed
            for replica in counting:
                if replica != self.node_id:
                    offset = min(offset, self.followers[replica].end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset

    def _decide(self) -> None:
        self.last_stable_offset = stable_offset(self.high_watermark, self.unstable_offset, self.start_offset)
        durable = self.disk_offset + self.unsynced_records
        self.written = min(self.end_offset, durable)
        self.committed = min(self.high_watermark, durable)
