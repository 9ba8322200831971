"""Reading as a member of a group: partitions come and go, offsets are kept by the cluster."""

from __future__ import annotations

import asyncio
import inspect
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ottla.client.consumer.fetch import FetchLimits
from ottla.client.consumer.fetched_data import Fetched
from ottla.client.consumer.fetcher import Fetcher
from ottla.client.consumer.hand_out import (
    HasInterruptions,
    hand_out,
    hand_out_arrow,
    hand_out_batches,
    hand_out_messages,
)
from ottla.client.consumer.options import (
    GroupProtocol,
    GuaranteeName,
    Listeners,
    Told,
    check_choices,
    read_subscription,
)
from ottla.client.consumer.partition_position import NOWHERE, Held, Place
from ottla.client.consumer.recovery import Recovery, RecoveryOptions
from ottla.client.consumer.start_offsets import Locator
from ottla.client.errors import ClientError, CommitFailed
from ottla.client.group.classic import ClassicMember
from ottla.client.group.committer import Committer
from ottla.client.group.consumer import ConsumerMember
from ottla.client.group.coordinator import Coordinator, CoordinatorKind
from ottla.client.group.member import Change, Member, MemberSettings, logger
from ottla.client.group.offsets import GroupOffsets, Membership, Offset, TopicPartition
from ottla.client.group.subscription import Subscription
from ottla.client.message import Message
from ottla.client.network.cluster import ClientOptions, Cluster
from ottla.client.offsets import EARLIEST, Isolation, Position, find_offsets

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
DEFAULT_WAIT_MS = 500
AT_MOST_ONCE_RECORDS = 500
"""How many records are committed together before they are handed out."""


class Consumer:
    """Reads topics, alone or as a member of a `group`. A context manager; iterate over it for messages.

    `delivery` says what a failure may cost: with "at-most-once" records (they are committed before they are handed
    out), with "at-least-once" that some come again (they are committed after they were processed, every
    `auto_commit_ms`, and when partitions go), with "exactly-once" nothing: the offsets are committed by a
    producer's transaction, `t.send_offsets(consumer)`, and only committed records are read.
    A record counts as processed when the next one, or the next batch, is asked for.
    `start` is where to begin without a committed offset, and where to go on if that is not there any more; None
    makes either an error.
    """

    def __init__(
        self, bootstrap: str, topics: str | Sequence[str] | None = None, *, group: str | None = None,
        pattern: str | re.Pattern[str] | None = None, delivery: GuaranteeName = "at-least-once",
        start: Position | None = EARLIEST, isolation: Isolation = Isolation.READ_COMMITTED,
        group_protocol: GroupProtocol = "classic", assignors: Sequence[str] = ("cooperative-sticky",),
        server_assignor: str | None = None, instance_id: str | None = None, session_timeout_ms: int = 45_000,
        heartbeat_ms: int = 3_000, max_poll_interval_ms: int = 300_000, auto_commit: bool = True,
        auto_commit_ms: int = 5_000, on_assigned: Told | None = None, on_revoked: Told | None = None,
        on_lost: Told | None = None, partition_bytes: int = FetchLimits().partition_bytes,
        fetch_bytes: int = FetchLimits().fetch_bytes, fetch_wait_ms: int = DEFAULT_WAIT_MS,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        check_choices(delivery, group_protocol, assignors)
        self.group = group
        self.delivery = delivery
        self.interrupted = False
        """Something has to be done before more of what is fetched is handed out."""
        self._subscription = read_subscription(topics, pattern)
        if self._subscription is not None and group is None:
            raise ValueError("to subscribe is to be in a group: give its name, or assign partitions")
        self._bootstrap = bootstrap
        self._cluster = Cluster(bootstrap, options)
        self._start = start
        self._isolation = Isolation.READ_COMMITTED if delivery == "exactly-once" else isolation
        self._member_type = ClassicMember if group_protocol == "classic" else ConsumerMember
        self._settings = MemberSettings(
            instance_id, session_timeout_ms, heartbeat_ms, max_poll_interval_ms, tuple(assignors), server_assignor
        )
        self._auto_commit_ms = auto_commit_ms if auto_commit and delivery == "at-least-once" else 0
        self.listeners = Listeners(on_assigned, on_revoked, on_lost)
        self._limits = FetchLimits(partition_bytes, fetch_bytes)
        self._fetch_wait_ms = fetch_wait_ms
        self._member: Member | None = None
        self._telling: Change | None = None
        self._going_out: Iterator[Any] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._is_polling = False
        self._is_handling = False
        self._polled_at = time.monotonic()

    async def __aenter__(self) -> Self:
        try:
            await self._cluster.open()
        except BaseException:
            await self._cluster.close()
            raise
        self._woken = asyncio.Event()
        self._fetcher = Fetcher(self._cluster, self._isolation, self._limits, self._fetch_wait_ms, self._woken.set)
        coordinator = None if self.group is None else Coordinator(self._cluster, CoordinatorKind.GROUP, self.group)
        self._coordinator = coordinator
        self._committer = Committer(coordinator, self._fetcher.places, self._membership)
        self._locator = Locator(self._cluster, self._fetcher, self._committer, self._start, self._isolation)
        self._tasks.append(asyncio.create_task(self._fetcher.run()))
        if self._auto_commit_ms and self.group is not None:
            self._tasks.append(asyncio.create_task(self._committer.run(self._auto_commit_ms)))
        if self._subscription is not None:
            self._join(self._subscription)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.end(is_processed=kind is None)

    async def close(self) -> None:
        """Commits what was handed out, if it is to commit by itself, and leaves the group."""
        await self.end(is_processed=True)

    async def end(self, *, is_processed: bool) -> None:
        """`is_processed`: whether what was handed out last was processed, too."""
        if not self._tasks:
            await self._cluster.close()
            return
        if is_processed:
            self._settle_in_hand()
        try:
            await self._tell(Change(revoked=self.assignment))
            if self._auto_commit_ms and self.group is not None:
                await self._committer.commit_processed(self._places)
        except ClientError as error:
            logger.warning("group %s: the last offsets were not committed: %s", self.group, error)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._tasks.clear()
            if self._member is not None:
                await self._member.close()
            await self._cluster.close()

    # What to read.

    async def subscribe(
        self, topics: str | Sequence[str] | None = None, *, pattern: str | re.Pattern[str] | None = None
    ) -> None:
        """As a member of the group, in place of what was subscribed to before."""
        subscription = read_subscription(topics, pattern)
        if subscription is None or self.group is None:
            raise ValueError("to subscribe is to be in a group, for some topics")
        self._subscription = subscription
        if self._member is None:
            self._fetcher.places.clear()
            self._join(subscription)
        else:
            self._member.resubscribe(subscription)

    async def unsubscribe(self) -> None:
        """Leaves the group, if it is in one, and reads nothing."""
        if self._auto_commit_ms and self.group is not None:
            await self._committer.commit_processed(self._places)
        if self._member is not None:
            await self._member.close()
        self._member = self._subscription = self._telling = None
        self._fetcher.places.clear()
        self.interrupted = True

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads just these, from where the group has committed, if there is one. No member of the group."""
        await self.unsubscribe()
        places = {one: Place(one) for one in partitions}
        await self._locator.locate(places.values())
        self._fetcher.places.update(places)
        self._fetcher.wake()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read at the moment."""
        return frozenset(self._places) if self._tasks else frozenset()

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until `resume`. Others go on, and the group notices nothing."""
        for one in partitions:
            self._place(one).is_paused = True
        self.interrupted = True

    def resume(self, *partitions: TopicPartition) -> None:
        for one in partitions:
            self._place(one).is_paused = False
        self._woken_from_anywhere()

    async def seek(self, partition: TopicPartition, position: Position) -> None:
        """Goes on from another position: an offset, EARLIEST, LATEST or AtTime."""
        place = self._place(partition)
        found = await find_offsets(self._cluster, partition.topic, [partition.partition], position, self._isolation)
        place.move(found[partition.partition])
        self.interrupted = True
        self._fetcher.wake()

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be handed out."""
        return self._place(partition).position

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are behind the position, by what was fetched last; partitions without news are left out."""
        return {
            one: max(0, place.high_watermark - place.position)
            for one, place in self._places.items()
            if place.high_watermark != NOWHERE and place.position != NOWHERE
        }

    @property
    def _places(self) -> dict[TopicPartition, Place]:
        return self._fetcher.places

    def _place(self, partition: TopicPartition) -> Place:
        place = self._places.get(partition)
        if place is None:
            raise ValueError(f"{partition} is not assigned to this consumer")
        return place

    # Handing out.

    async def __aiter__(self) -> AsyncIterator[Message]:
        async for message in self._hand_out(hand_out_messages):
            yield message

    async def batches(self) -> AsyncIterator[Fetched]:
        """Records of one partition at a time, as many as came together."""
        async for batch in self._hand_out(hand_out_batches):
            yield batch

    async def arrow_batches(self, *, with_headers: bool = False) -> AsyncIterator[pa.RecordBatch]:
        """The same as Arrow: topic, partition, offset, timestamp, key, value, and headers if they are asked for."""
        async for batch in self._hand_out(hand_out_arrow(with_headers=with_headers)):
            yield batch

    async def _hand_out(self, opened: Callable[[HasInterruptions, Held], Iterator[T]]) -> AsyncIterator[T]:
        while True:
            for one in self.keep(hand_out(self, await self._advance(None), opened)):
                yield one

    def keep(self, going_out: Iterator[T]) -> Iterator[T]:
        """What is being handed out: what is left of it when more is asked for is put back then."""
        self._going_out = going_out
        return going_out

    async def poll(self, wait_ms: int = DEFAULT_WAIT_MS) -> list[Fetched]:
        """What there is, by partition; empty where nothing came within the time."""
        return list(hand_out(self, await self._advance(wait_ms), hand_out_batches))

    async def _advance(self, wait_ms: int | None) -> list[Held]:
        while True:
            step = await self.next(wait_ms)
            if not isinstance(step, Change):
                return step
            await self._tell(step)

    async def _tell(self, change: Change) -> None:
        for told, partitions in told_of(self.listeners, change):
            result = told(partitions)
            if inspect.isawaitable(result):
                await result

    async def next(self, wait_ms: int | None) -> list[Held] | Change:
        """What is to be handed out, or a change that its user must be told of before the next call.

        All that was handed out before is processed. Empty when nothing came within the time; None waits for ever.
        """
        if isinstance(self._going_out, Generator):
            self._going_out.close()
        self._settle_in_hand()
        self._is_polling = True
        deadline = None if wait_ms is None else time.monotonic() + wait_ms / 1000
        try:
            while True:
                step = await self._step()
                if step or isinstance(step, Change):
                    return step
                try:
                    async with asyncio.timeout(None if deadline is None else max(deadline - time.monotonic(), 0)):
                        await self._woken.wait()
                except TimeoutError:
                    return []
        finally:
            self._is_polling = False
            self._polled_at = time.monotonic()

    async def _step(self) -> list[Held] | Change:
        if self._telling is not None:
            self._finish(self._telling)
        self._woken.clear()
        self.interrupted = False
        self._raise_errors()
        if self._member is not None:
            self._member.polled()
            if self._member.pending is not None:
                self._telling = self._member.pending
                await self._prepare(self._telling)
                return self._telling
        lost = [place for place in self._places.values() if place.position == NOWHERE]
        if lost:
            await self._locator.locate(lost)
        ready = self._ready()
        if ready and self.delivery == "at-most-once":
            ready = await self._committed_first(ready)
        return ready

    def _ready(self) -> list[Held]:
        ready = []
        for place in self._places.values():
            while place.held and not place.is_paused:
                held = place.held.popleft()
                if not held.is_stale:
                    ready.append(held)
                    break
        self._fetcher.wake()
        return ready

    async def _committed_first(self, ready: list[Held]) -> list[Held]:
        """A few records of each are committed, and then given out."""
        heads = [held._replace(portion=held.portion.head(AT_MOST_ONCE_RECORDS)) for held in ready]
        for held in ready:
            if held.portion.start < held.portion.next_offset:
                held.place.held.appendleft(held)
        if self.group is not None:
            await self.commit({head.place.topic_partition: head.portion.next_offset for head in heads})
        return heads

    def _settle_in_hand(self) -> None:
        for place in self._places.values():
            place.in_hand = None

    def _raise_errors(self) -> None:
        if self._member is not None and self._member.error is not None:
            raise self._member.error.again()
        error, self._fetcher.error = self._fetcher.error, None
        if error is not None:
            raise error

    def _woken_from_anywhere(self) -> None:
        self._fetcher.wake()
        self._woken.set()

    # The group.

    def _join(self, subscription: Subscription) -> None:
        assert self._coordinator is not None
        assert self.group is not None
        self._member = self._member_type(
            self._coordinator, self.group, subscription, self._settings, self._wake_for_change, self._is_stuck
        )
        self._member.start()

    def _wake_for_change(self) -> None:
        self.interrupted = True
        self._woken.set()

    def _is_stuck(self) -> bool:
        """A handler that still runs is slow, not stuck."""
        if self._is_polling or self._is_handling:
            return False
        return (time.monotonic() - self._polled_at) * 1000 > self._settings.max_poll_interval_ms

    async def _prepare(self, change: Change) -> None:
        """Before the user is told."""
        if change.revoked and self._auto_commit_ms:
            try:
                await self._committer.commit_processed(change.revoked)
            except ClientError as error:
                logger.warning("group %s: offsets of what is given up were not committed: %s", self.group, error)
        places = {one: Place(one) for one in sorted(change.assigned)}
        if places:
            await self._locator.locate(places.values())
            self._places.update(places)
            self._fetcher.wake()

    def _finish(self, change: Change) -> None:
        """After the user was told."""
        self._telling = None
        for one in change.revoked | change.lost:
            self._places.pop(one, None)
        assert self._member is not None
        self._member.apply(change)

    # Offsets.

    def group_offsets(self) -> GroupOffsets:
        """How far records were handed out, to be committed in a transaction. Does not block."""
        return GroupOffsets(
            self._membership(),
            {one: Offset(place.position) for one, place in self._places.items() if place.position != NOWHERE},
        )

    async def commit(self, offsets: Mapping[TopicPartition, int | Offset] | None = None) -> None:
        """That everything handed out so far is processed; or the offsets given, each of the next record to read."""
        if self.delivery == "exactly-once":
            raise RuntimeError("with exactly-once, offsets are committed by a transaction: t.send_offsets(consumer)")
        if offsets is None:
            offsets = self.group_offsets().offsets
        await self._committer.commit(
            {one: offset if isinstance(offset, Offset) else Offset(offset) for one, offset in offsets.items()}
        )

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed, of those that have something."""
        return await self._committer.fetch(list(partitions))

    def _membership(self) -> Membership:
        return Membership(self.group or "") if self._member is None else self._member.membership

    async def rewind(self) -> None:
        """Back to what is committed: after a transaction that was aborted, so that nothing is left out."""
        for place in self._places.values():
            place.move(NOWHERE)
        await self._locator.locate(self._places.values())
        self.interrupted = True
        self._fetcher.wake()

    # A handler.

    @contextmanager
    def handling(self) -> Iterator[None]:
        """However long it takes, it is not stuck."""
        self._is_handling = True
        try:
            yield
        finally:
            self._polled_at = time.monotonic()
            self._is_handling = False

    async def run(self, handler: Callable[[Message], Awaitable[Any]], **options: Unpack[RecoveryOptions]) -> None:
        """Calls the handler with each message, one after the other, for ever. How slow it is does not matter.

        When it raises, the message is tried again, `retries` times, with pauses that double from `backoff_ms` on.
        Then it goes to the topic `dead_letter`, with the reason in its headers, and its partition goes on; without
        one the error is raised. With exactly-once it needs a transactional `producer`: what the handler sends with
        it, the dead letters and the offsets of each batch are one transaction.
        """
        async with self.recovery(options) as recovery:
            if self.delivery != "exactly-once":
                async for message in self:
                    await self._handle(handler, message, recovery)
                return
            async for batch in self.batches():
                try:
                    async with recovery.the_producer.transaction() as transaction:
                        for record in batch.records:
                            await self._handle(handler, Message(batch.topic, batch.partition, record), recovery)
                        await transaction.send_offsets(self)
                except CommitFailed as error:
                    logger.warning("%s", error)
                    await self.rewind()

    def recovery(self, options: RecoveryOptions) -> Recovery:
        if self.delivery == "exactly-once" and options.get("producer") is None:
            raise ValueError("to handle exactly once takes a producer with a transactional_id")
        return Recovery(self._bootstrap, self._cluster.options, options)

    async def _handle(self, handler: Callable[[Message], Awaitable[Any]], message: Message, recovery: Recovery) -> None:
        attempt = 0
        with self.handling():
            while True:
                try:
                    await handler(message)
                except Exception as error:
                    attempt += 1
                    if await recovery.shall_try_again(message, error, attempt):
                        continue
                return


def told_of(listeners: Listeners, change: Change) -> Iterator[tuple[Told, list[TopicPartition]]]:
    """Who is to be told, and of what."""
    pairs = (
        (listeners.on_revoked, change.revoked),
        # Who does not tell the two apart wants to know of both.
        (listeners.on_lost or listeners.on_revoked, change.lost),
        (listeners.on_assigned, change.assigned),
    )
    for told, partitions in pairs:
        if told is not None and partitions:
            yield told, sorted(partitions)
