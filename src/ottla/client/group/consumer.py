"""A member of a group of the new protocol (KIP-848): heartbeats are all there is, the coordinator assigns."""

from __future__ import annotations

import base64
import uuid
from typing import ClassVar

from ottla.client.errors import ServerError
from ottla.client.group.machine import (
    Answered,
    Applied,
    Change,
    FindTarget,
    HeartbeatDue,
    MemberMachine,
    MemberSettings,
    NextHeartbeat,
    RequestFailed,
    Retry,
    RetryDue,
    SendHeartbeat,
    SendLeave,
    Start,
    State,
    Table,
    TargetFound,
    TopicsChanged,
    whole_table,
)
from ottla.client.group.offsets import Membership, TopicPartition
from ottla.wire.errors import ErrorCode

JOIN_EPOCH = 0
_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


class ConsumerMachine(MemberMachine):
    """JOINING until the coordinator has given it an epoch, then STABLE: partitions come and go without other states."""

    def __init__(self, group_id: str, settings: MemberSettings) -> None:
        super().__init__(group_id, settings)
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self.epoch = JOIN_EPOCH
        self._target: frozenset[TopicPartition] | None = None
        """What the coordinator wants it to own, as it said it last."""
        self._interval_ms = 0
        self._is_full = True
        """The answer to the last one may be lost: say everything again, so that everything is answered again."""
        self._is_sent = False
        self._is_due = False

    @property
    def membership(self) -> Membership:
        return Membership(self.group_id, self.epoch, self.member_id, self.settings.instance_id)

    def _start(self, _: Start) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.state = State.JOINING
        self.epoch = JOIN_EPOCH
        self._target = None
        self._is_full = True
        self._is_sent = False
        self._beat_now()

    def _beat_now(self) -> None:
        if self._is_sent:
            self._is_due = True
            return
        self._is_sent, self._is_due = True, False
        self._do(SendHeartbeat(self._next_attempt(), self._is_full))

    def _beat(self, event: HeartbeatDue) -> None:
        if event.is_stuck and self.state is State.STABLE:
            self._do(SendLeave())
            self._lose(is_away=True)
        else:
            self._beat_now()

    def _topics_changed(self, _: TopicsChanged) -> None:
        self._beat_now()

    def _answered(self, event: Answered) -> None:
        if event.attempt != self._attempt:
            return
        answer = event.answer
        self._is_sent = False
        if answer.error_code in _FENCED:
            self._lose()
            return
        if answer.error_code:
            self._refused(ServerError(answer.error_code, answer.error_message, about=f"group {self.group_id}"))
            return
        if event.given_away:
            # Another may have them already. Under the new epoch they could be committed all the same.
            self._lose()
            return
        self.state = State.STABLE
        self.epoch = answer.member_epoch
        self._interval_ms = answer.heartbeat_interval_ms
        self._is_full = False
        if answer.assignment is not None:
            self._do(FindTarget(answer.assignment.topic_partitions))
        if self._is_due:
            self._beat_now()
        else:
            self._do(NextHeartbeat(self._interval_ms))

    def _refused(self, error: ServerError) -> None:
        if error.is_retriable:
            self._is_full = True
            self._do(Retry(self._next_attempt()))
        else:
            self._fail(error, is_permanent=error.code == ErrorCode.FENCED_INSTANCE_ID)

    def _request_failed(self, event: RequestFailed) -> None:
        if event.attempt != self._attempt:
            return
        self._is_sent = False
        if event.error.is_retriable:
            self._is_full = True
            self._do(Retry(self._next_attempt()))
        else:
            self._fail(event.error)

    def _retry(self, event: RetryDue) -> None:
        if event.attempt == self._attempt:
            self._beat_now()

    # What it is to own: give up first, tell the coordinator, then take. A newer target overtakes.

    def _found_target(self, event: TargetFound) -> None:
        self._target = event.target
        if not self._pending_is_taken:
            self.pending = None
        self._reconcile()

    def _applied(self, event: Applied) -> None:
        if self._target is not None:
            # While the user was told of these, the coordinator gave them to others: nobody had confirmed them.
            self._mistaken |= event.change.assigned - self._target
            self.owned -= self._mistaken
        self._beat_now()
        self._reconcile()

    def _reconcile(self) -> None:
        if self.pending is not None or self._target is None:
            return
        if self._mistaken:
            self._offer(Change(lost=self._mistaken))
        elif self.owned - self._target:
            self._offer(Change(revoked=self.owned - self._target))
        elif self._target - self.owned:
            self._offer(Change(assigned=self._target - self.owned))

    TABLE: ClassVar[Table] = whole_table({
        (State.IDLE, Start): _start,
        (State.JOINING, Answered): _answered,
        (State.JOINING, RequestFailed): _request_failed,
        (State.JOINING, RetryDue): _retry,
        (State.JOINING, HeartbeatDue): _beat,
        (State.STABLE, Answered): _answered,
        (State.STABLE, RequestFailed): _request_failed,
        (State.STABLE, RetryDue): _retry,
        (State.STABLE, HeartbeatDue): _beat,
        (State.STABLE, TopicsChanged): _topics_changed,
        (State.STABLE, TargetFound): _found_target,
        (State.STABLE, Applied): _applied,
    })  # fmt: skip
