"""The options of a consumer, checked."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

from ottla.client.checks import why_no_topic
from ottla.client.consumer.fetch import FetchLimits
from ottla.client.group.assignors import ASSIGNORS
from ottla.client.group.machine import Change, MemberSettings
from ottla.client.group.offsets import TopicPartition
from ottla.client.group.subscription import Subscription
from ottla.client.network.cluster import ClientOptions
from ottla.client.offsets import Isolation, Position
from ottla.client.serde.binding import Deserializer, Deserializers

GuaranteeName: TypeAlias = Literal["at-most-once", "at-least-once", "exactly-once"]
GroupProtocol: TypeAlias = Literal["classic", "consumer"]
GUARANTEES = ("at-most-once", "at-least-once", "exactly-once")
PROTOCOLS = ("classic", "consumer")
Told: TypeAlias = Callable[[list[TopicPartition]], Awaitable[Any] | Any]


class Listeners(NamedTuple):
    """Whom to tell. Each gets the partitions; on an event loop it may be a coroutine function."""

    on_assigned: Told | None = None
    on_revoked: Told | None = None
    on_lost: Told | None = None


class CoreOptions(NamedTuple):
    """What the core of a consumer is told, checked."""

    group: str | None
    delivery: GuaranteeName
    start: Position | None
    isolation: Isolation
    is_classic: bool
    member: MemberSettings
    auto_commit_ms: int
    """0: not by itself."""
    limits: FetchLimits
    fetch_wait_ms: int
    buffer_bytes: int
    deserializers: Deserializers

    @property
    def commits_what_it_gives_up(self) -> bool:
        """At most once, too: less was handed out, perhaps, than was committed before."""
        return bool(self.auto_commit_ms) or self.delivery == "at-most-once"


class ConsumerOptions(TypedDict, total=False):
    """The options of a Consumer, for faces that pass them on."""

    group: str | None
    pattern: str | re.Pattern[str] | None
    delivery: GuaranteeName
    start: Position | None
    isolation: Isolation
    group_protocol: GroupProtocol
    assignors: Sequence[str]
    server_assignor: str | None
    instance_id: str | None
    session_timeout_ms: int
    heartbeat_ms: int
    max_poll_interval_ms: int
    auto_commit: bool
    auto_commit_ms: int
    on_assigned: Told | None
    on_revoked: Told | None
    on_lost: Told | None
    partition_bytes: int
    fetch_bytes: int
    fetch_wait_ms: int
    buffer_bytes: int
    key: Deserializer | None
    value: Deserializer | None
    options: ClientOptions


def told_of(listeners: Listeners, change: Change) -> Iterator[tuple[Told, list[TopicPartition]]]:
    """Who is to be told, and of what."""
    pairs = (
        (listeners.on_revoked, change.revoked),
        # A listener that does not distinguish the two is told of both.
        (listeners.on_lost or listeners.on_revoked, change.lost),
        (listeners.on_assigned, change.assigned),
    )
    for told, partitions in pairs:
        if told is not None and partitions:
            yield told, sorted(partitions)


LEAST = {
    "session_timeout_ms": 1,
    "heartbeat_ms": 1,
    "max_poll_interval_ms": 1,
    "auto_commit_ms": 1,
    "partition_bytes": 0,
    "fetch_bytes": 0,
    "fetch_wait_ms": 0,
    "buffer_bytes": 0,
}


def check_choices(delivery: str, group_protocol: str, assignors: Sequence[str]) -> None:
    if delivery not in GUARANTEES:
        raise ValueError(f"delivery is one of {', '.join(GUARANTEES)}, not {delivery!r}")
    if group_protocol not in PROTOCOLS:
        raise ValueError(f"group_protocol is one of {', '.join(PROTOCOLS)}, not {group_protocol!r}")
    if isinstance(assignors, str):
        raise TypeError(f"assignors are a list of names, not {assignors!r}; for one: [{assignors!r}]")
    unknown = [name for name in assignors if name not in ASSIGNORS]
    if unknown or not assignors:
        raise ValueError(f"assignors are of {', '.join(ASSIGNORS)}, not {', '.join(map(repr, unknown)) or 'none'}")


def check_heartbeat(group_protocol: str, heartbeat_ms: float, session_timeout_ms: int) -> None:
    """A member that is heard of less often would be thrown out. In the new protocol the coordinator says how often."""
    if group_protocol == "classic" and heartbeat_ms >= session_timeout_ms:
        raise ValueError(f"heartbeat_ms={heartbeat_ms} is not below session_timeout_ms={session_timeout_ms}")


def read_subscription(topics: str | Sequence[str] | None, pattern: str | re.Pattern[str] | None) -> Subscription | None:
    """None if nothing is subscribed to."""
    if topics is not None and pattern is not None:
        raise ValueError("subscribe by topics or by a pattern, not by both")
    if pattern is not None:
        return Subscription(pattern=re.compile(pattern))
    if topics is None:
        return None
    names = frozenset([topics] if isinstance(topics, str) else topics)
    for reason in map(why_no_topic, names):
        if reason:
            raise ValueError(reason)
    return Subscription(names)
