"""A member of a group as its consumer sees it, without I/O: what happened comes in, what is to be done goes out.

What a member reads changes only when its consumer says so, for its user may be in the middle of something: a change is
offered as `pending`, taken by the consumer, and `Applied` when the user has been told. Heartbeats go on meanwhile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, ClassVar, NamedTuple, TypeAlias

from ottla.client.errors import ClientError
from ottla.client.group.offsets import Membership, TopicPartition

NOTHING: frozenset[TopicPartition] = frozenset()


class Change(NamedTuple):
    """What a consumer is to give up, or gets. What is lost belongs to others already: it cannot be committed."""

    revoked: frozenset[TopicPartition] = NOTHING
    lost: frozenset[TopicPartition] = NOTHING
    assigned: frozenset[TopicPartition] = NOTHING


class MemberSettings(NamedTuple):
    instance_id: str | None
    session_timeout_ms: int
    heartbeat_ms: int
    max_poll_interval_ms: int
    assignors: tuple[str, ...]
    server_assignor: str | None


class State(Enum):
    IDLE = auto()
    REVOKING = auto()
    """Gives up all it has before it joins again, as eager assignors want it."""
    JOINING = auto()
    SYNCING = auto()
    TAKING = auto()
    """Walks from what it owns to what it was given."""
    STABLE = auto()
    LOSING = auto()
    """Was thrown out: joins again when its user knows."""
    AWAY = auto()
    """Has left, for its user asks for nothing: until it does."""
    FAILED = auto()
    CLOSED = auto()


# Events.


class Start(NamedTuple):
    pass


class Closed(NamedTuple):
    pass


class TopicsChanged(NamedTuple):
    """The topics, or what is wanted of them, may be others now."""


class Answered(NamedTuple):
    """The answer to the request of an attempt. Late ones, of other attempts, are nobody's."""

    attempt: int
    answer: Any
    given_away: frozenset[TopicPartition] = NOTHING
    """What the member has taken since it asked, and so had not named, and what is another's by this answer."""


class Synced(NamedTuple):
    attempt: int
    code: int
    target: frozenset[TopicPartition]


class RequestFailed(NamedTuple):
    """No answer, or none that helps. `will_retry`: the same may succeed later."""

    attempt: int
    error: ClientError


class RetryDue(NamedTuple):
    attempt: int


class HeartbeatDue(NamedTuple):
    is_stuck: bool
    """The user has not asked for records for too long."""


class HeartbeatAnswered(NamedTuple):
    generation: int
    code: int


class HeartbeatFailed(NamedTuple):
    """Of a classic member: no answer. The next one will tell."""


class TargetFound(NamedTuple):
    target: frozenset[TopicPartition]


class Applied(NamedTuple):
    change: Change


class Polled(NamedTuple):
    """The user is here."""


class ErrorTold(NamedTuple):
    """The user knows of the error: it may be tried again."""


# Effects.


class SendJoin(NamedTuple):
    attempt: int


class SendSync(NamedTuple):
    attempt: int
    joined: Any


class SendHeartbeat(NamedTuple):
    attempt: int
    is_full: bool = False


class SendLeave(NamedTuple):
    pass


class FindTarget(NamedTuple):
    """What the coordinator wants it to own, by topic ids."""

    rows: Any


class Retry(NamedTuple):
    """After a pause, longer each time."""

    attempt: int


class NextHeartbeat(NamedTuple):
    after_ms: int


class Offered(NamedTuple):
    """The consumer has something to look at: a change or an error."""


Effect: TypeAlias = (
    SendJoin | SendSync | SendHeartbeat | SendLeave | FindTarget | Retry | NextHeartbeat | Offered
)  # fmt: skip
Handler: TypeAlias = Callable[[Any, Any], None]
Table: TypeAlias = Mapping[tuple[State, type], Handler]


class MemberMachine(ABC):
    """What both protocols have in common. `TABLE` says what is done with an event in a state; what it does not say is
    late, or means nothing there."""

    TABLE: ClassVar[Table]

    def __init__(self, group_id: str, settings: MemberSettings) -> None:
        self.group_id = group_id
        self.settings = settings
        self.state = State.IDLE
        self.member_id = ""
        self.owned = NOTHING
        self._mistaken = NOTHING
        """What its user was told of after the coordinator had given it to others: never owned, and to be lost."""
        self.pending: Change | None = None
        self.error: ClientError | None = None
        """Why it is no member."""
        self.is_permanent = False
        """The error stays, whatever is tried."""
        self._pending_is_taken = False
        self._attempt = 0
        self._effects: list[Effect] = []

    @property
    def is_out(self) -> bool:
        """What it had is others' already, or may be."""
        return self.state in (State.LOSING, State.AWAY, State.FAILED)

    @property
    @abstractmethod
    def membership(self) -> Membership:
        """As whom to commit."""

    @property
    def is_rejoining(self) -> bool:
        """A new generation is about to be known."""
        return self.state in (State.JOINING, State.SYNCING)

    def handle(self, event: Any) -> list[Effect]:
        if isinstance(event, Applied):
            self._apply(event.change)
        handler = self.TABLE.get((self.state, type(event)))
        if handler is not None:
            handler(self, event)
        effects, self._effects = self._effects, []
        return effects

    def take_pending(self) -> Change | None:
        """The consumer begins with the change, and will say when it is applied."""
        self._pending_is_taken = self.pending is not None
        return self.pending

    def _apply(self, change: Change) -> None:
        self.owned = self.owned - change.revoked - change.lost | change.assigned
        self._mistaken -= change.lost
        self.pending = None
        self._pending_is_taken = False

    # For protocols.

    def _do(self, *effects: Effect) -> None:
        self._effects += effects

    def _next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt

    def _offer(self, change: Change) -> None:
        self.pending = change
        self._pending_is_taken = False
        self._do(Offered())

    def _lose(self, *, is_away: bool = False) -> None:
        """Thrown out, or gone: what it had is others'. Who it was is forgotten when its user knows, so that what is
        committed before is refused as a lost member's."""
        self._next_attempt()
        self.state = State.LOSING
        if self._pending_is_taken:
            return  # the user is being told of something else: then of this
        self.pending = None
        if self._held:
            self._offer(Change(lost=self._held))
        elif is_away:
            self.state = State.AWAY
        else:
            self._begin_anew()

    @property
    def _held(self) -> frozenset[TopicPartition]:
        """What its user believes to have."""
        return self.owned | self._mistaken

    def _go_on_losing(self, _: Applied) -> None:
        if self._held:
            self._offer(Change(lost=self._held))
        else:
            self._begin_anew()

    def _come_back(self, _: Polled) -> None:
        self._begin_anew()

    @abstractmethod
    def _begin_anew(self) -> None:
        """As nobody the group knows."""

    def _fail(self, error: ClientError, *, is_permanent: bool = False) -> None:
        self._next_attempt()
        self.state = State.FAILED
        self.error = error
        self.is_permanent = is_permanent
        self._do(Offered())

    def _try_again(self, _: ErrorTold) -> None:
        if not self.is_permanent:
            self.error = None
            self._lose()

    def _close(self, _: Closed) -> None:
        self._next_attempt()
        self.state = State.CLOSED
        self.pending = None


_IN_BOTH_PROTOCOLS: dict[tuple[State, type], Handler] = {
    (State.LOSING, Applied): MemberMachine._go_on_losing,
    (State.AWAY, Polled): MemberMachine._come_back,
    (State.FAILED, ErrorTold): MemberMachine._try_again,
    **{(state, Closed): MemberMachine._close for state in State},
}


def whole_table(rows: dict[tuple[State, type], Handler]) -> Table:
    """With the rows that both protocols have: who is lost, away, failed or closed does the same in either."""
    return rows | _IN_BOTH_PROTOCOLS
