"""A member of a classic group: join, sync, heartbeats; the leader among the members assigns."""

from __future__ import annotations

from typing import Any, ClassVar

from ottla.client.errors import ServerError
from ottla.client.group.assignors import ASSIGNORS
from ottla.client.group.machine import (
    NOTHING,
    Answered,
    Applied,
    Change,
    Effect,
    HeartbeatAnswered,
    HeartbeatDue,
    HeartbeatFailed,
    MemberMachine,
    MemberSettings,
    NextHeartbeat,
    RequestFailed,
    Retry,
    RetryDue,
    SendHeartbeat,
    SendJoin,
    SendLeave,
    SendSync,
    Start,
    State,
    Synced,
    Table,
    TopicsChanged,
    whole_table,
)
from ottla.client.group.offsets import Membership
from ottla.wire.errors import ErrorCode

NO_GENERATION = -1
_UNKNOWN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


class ClassicMachine(MemberMachine):
    def __init__(self, group_id: str, settings: MemberSettings) -> None:
        super().__init__(group_id, settings)
        self.generation = NO_GENERATION
        self.had = NOTHING
        """What it was given last, for assignors that want to give it back."""
        self.had_in = NO_GENERATION
        self._target = NOTHING
        self._gave_up = False
        self._is_rebalance_wanted = False
        self._is_beating = False
        """A heartbeat is on its way: while a broker is away, they do not pile up."""
        self._is_known = False
        """The coordinator still has this member, in another generation: under another id it would wait for this one."""
        self._is_cooperative = all(ASSIGNORS[name].is_cooperative for name in settings.assignors)

    @property
    def membership(self) -> Membership:
        return Membership(self.group_id, self.generation, self.member_id, self.settings.instance_id)

    def handle(self, event: Any) -> list[Effect]:
        if isinstance(event, HeartbeatAnswered | HeartbeatFailed):
            self._is_beating = False
        return super().handle(event)

    # Joining.

    def _start(self, _: Start) -> None:
        self._begin_round()

    def _begin_round(self) -> None:
        """One generation, from its beginning to the first sign of the next."""
        self._is_rebalance_wanted = self._gave_up = False
        if self._is_cooperative or not self.owned:
            self._join()
        else:
            self.state = State.REVOKING
            self._offer(Change(revoked=self.owned))

    def _begin_anew(self) -> None:
        if not self._is_known:
            self.member_id = ""
        self._is_known = False
        self.generation = NO_GENERATION
        self._begin_round()

    def _revoked_all(self, _: Applied) -> None:
        self._join()

    def _join(self) -> None:
        self.state = State.JOINING
        self._is_rebalance_wanted = False
        self._do(SendJoin(self._next_attempt()))

    def _joined(self, event: Answered) -> None:
        if event.attempt != self._attempt:
            return
        answer = event.answer
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join()
        elif self._is_sound(answer.error_code):
            self.member_id = answer.member_id
            self.generation = answer.generation_id
            self.state = State.SYNCING
            self._do(SendSync(self._next_attempt(), answer))

    def _synced(self, event: Synced) -> None:
        if event.attempt != self._attempt or not self._is_sound(event.code):
            return
        self._target = event.target
        self.had, self.had_in = event.target, self.generation
        self._gave_up = bool(self.owned - event.target)
        self._do(NextHeartbeat(self.settings.heartbeat_ms))
        self._take()

    def _is_sound(self, code: int) -> bool:
        """Whether to go on with an answer; else what its code asks for is done."""
        if not code:
            return True
        if code in _UNKNOWN:
            self._is_known = code == ErrorCode.ILLEGAL_GENERATION
            self._lose()
        elif code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._join()
        else:
            self._refused(ServerError(code, about=f"group {self.group_id}"))
        return False

    def _refused(self, error: ServerError) -> None:
        if error.is_retriable:
            self.state = State.JOINING
            self._do(Retry(self._next_attempt()))
        else:
            self._fail(error, is_permanent=error.code == ErrorCode.FENCED_INSTANCE_ID)

    def _request_failed(self, event: RequestFailed) -> None:
        if event.attempt != self._attempt:
            return
        if event.error.is_retriable:
            self.state = State.JOINING
            self._do(Retry(self._next_attempt()))
        else:
            self._fail(event.error)

    def _retry(self, event: RetryDue) -> None:
        if event.attempt == self._attempt:
            self._join()

    # Walking to what it was given.

    def _take(self, _: Applied | None = None) -> None:
        self.state = State.TAKING
        if self.owned - self._target:
            self._offer(Change(revoked=self.owned - self._target))
        elif self._target - self.owned:
            self._offer(Change(assigned=self._target - self.owned))
        elif self._gave_up or self._is_rebalance_wanted:
            self._begin_round()  # what was given up can be given to others only in another round
        else:
            self.state = State.STABLE

    def _want_rebalance(self, _: TopicsChanged | None = None) -> None:
        if self.state is State.STABLE:
            self._begin_round()
        else:
            self._is_rebalance_wanted = True

    # Staying.

    def _beat(self, event: HeartbeatDue) -> None:
        if event.is_stuck:
            self._do(SendLeave())
            self._lose(is_away=True)
        else:
            if not self._is_beating:
                self._is_beating = True
                self._do(SendHeartbeat(self._attempt))
            self._do(NextHeartbeat(self.settings.heartbeat_ms))

    def _beaten(self, event: HeartbeatAnswered) -> None:
        if event.generation != self.generation or not event.code:
            return
        if event.code in _UNKNOWN:
            self._is_known = event.code == ErrorCode.ILLEGAL_GENERATION
            self._lose()
        elif event.code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.state is not State.REVOKING:  # that joins anyhow
                self._want_rebalance()
        else:
            error = ServerError(event.code, about=f"group {self.group_id}")
            if not error.is_retriable:
                self._fail(error, is_permanent=error.code == ErrorCode.FENCED_INSTANCE_ID)

    TABLE: ClassVar[Table] = whole_table({
        (State.IDLE, Start): _start,
        (State.REVOKING, Applied): _revoked_all,
        (State.REVOKING, HeartbeatDue): _beat,
        (State.REVOKING, HeartbeatAnswered): _beaten,
        (State.JOINING, Answered): _joined,
        (State.JOINING, RequestFailed): _request_failed,
        (State.JOINING, RetryDue): _retry,
        (State.JOINING, TopicsChanged): _want_rebalance,
        (State.SYNCING, Synced): _synced,
        (State.SYNCING, RequestFailed): _request_failed,
        (State.SYNCING, TopicsChanged): _want_rebalance,
        (State.TAKING, Applied): _take,
        (State.TAKING, TopicsChanged): _want_rebalance,
        (State.TAKING, HeartbeatDue): _beat,
        (State.TAKING, HeartbeatAnswered): _beaten,
        (State.STABLE, TopicsChanged): _want_rebalance,
        (State.STABLE, HeartbeatDue): _beat,
        (State.STABLE, HeartbeatAnswered): _beaten,
    })  # fmt: skip
