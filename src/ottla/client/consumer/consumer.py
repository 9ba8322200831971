"""Reading as a member of a group: partitions come and go, offsets are kept by the cluster."""

from __future__ import annotations

import asyncio
import inspect
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar, Unpack

from ottla.client.checks import check_functions, check_numbers, check_texts
from ottla.client.consumer.core import DEFAULT_WAIT_MS, ConsumerCore
from ottla.client.consumer.fetch import FetchLimits
from ottla.client.consumer.fetched_data import Fetched
from ottla.client.consumer.hand_out import (
    HandOut,
    Opened,
    hand_out_arrow,
    hand_out_batches,
    hand_out_messages,
    take_batches,
)
from ottla.client.consumer.options import (
    LEAST,
    CoreOptions,
    GroupProtocol,
    GuaranteeName,
    Listeners,
    Told,
    check_choices,
    check_heartbeat,
    read_subscription,
    told_of,
)
from ottla.client.consumer.recovery import Attempts, HandlerFailed, Recovery, RecoveryOptions
from ottla.client.consumer.statistics import ConsumerStatistics
from ottla.client.errors import CommitFailed, DeserializationFailed
from ottla.client.group.machine import Change, MemberSettings
from ottla.client.group.offsets import GroupOffsets, Offset, TopicPartition, as_places
from ottla.client.message import Message, message_of
from ottla.client.network.cluster import ClientOptions
from ottla.client.offsets import EARLIEST, Isolation, Position, check_position
from ottla.client.serde.binding import Deserializer, Deserializers

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("ottla.client")

T = TypeVar("T")
Handler: TypeAlias = Callable[[Message], Awaitable[Any] | Any]
"""What it gives back is awaited, if it can be."""
DEFAULT_BUFFER_BYTES = 64 << 20
DEFAULT_CLOSE_SECONDS = 30.0


class Consumer:
    """Reads topics, alone or as a member of a `group`. A context manager; iterate over it for messages.

    `delivery` says what a failure may cost: with "at-most-once" records (they are committed before they are handed
    out), with "at-least-once" that some come again (they are committed after they were processed, every
    `auto_commit_ms`, and when partitions go), with "exactly-once" nothing: the offsets are committed by a
    producer's transaction, `t.send_offsets(consumer)`, and only committed records are read.
    A record counts as processed when the next one, or the next batch, is asked for.
    `start` is where to begin without a committed offset, and where to go on if that is not there any more; None
    makes either an error.
    `key` and `value` are functions that make objects of bytes. `buffer_bytes` is how much is fetched ahead, at most.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], topics: str | Sequence[str] | None = None, *, group: str | None = None,
        pattern: str | re.Pattern[str] | None = None, delivery: GuaranteeName = "at-least-once",
        start: Position | None = EARLIEST, isolation: Isolation = Isolation.READ_COMMITTED,
        group_protocol: GroupProtocol = "classic", assignors: Sequence[str] = ("cooperative-sticky",),
        server_assignor: str | None = None, instance_id: str | None = None, session_timeout_ms: int = 45_000,
        heartbeat_ms: int = 3_000, max_poll_interval_ms: int = 300_000, auto_commit: bool = True,
        auto_commit_ms: int = 5_000, on_assigned: Told | None = None, on_revoked: Told | None = None,
        on_lost: Told | None = None, partition_bytes: int = FetchLimits().partition_bytes,
        fetch_bytes: int = FetchLimits().fetch_bytes, fetch_wait_ms: int = DEFAULT_WAIT_MS,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES, key: Deserializer | None = None, value: Deserializer | None = None,
        options: ClientOptions = ClientOptions(),  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        check_choices(delivery, group_protocol, assignors)
        check_numbers(locals(), LEAST)
        check_heartbeat(group_protocol, heartbeat_ms, session_timeout_ms)
        check_functions(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        check_texts(group=group, instance_id=instance_id, server_assignor=server_assignor)
        check_position(start)
        self.group = group
        self.delivery = delivery
        self.listeners = Listeners(on_assigned, on_revoked, on_lost)
        self._bootstrap = bootstrap
        self._options = options
        self.core = ConsumerCore(
            bootstrap, options, read_subscription(topics, pattern),
            CoreOptions(
                group=group,
                delivery=delivery,
                start=start,
                isolation=Isolation.READ_COMMITTED if delivery == "exactly-once" else Isolation(isolation),
                is_classic=group_protocol == "classic",
                member=MemberSettings(
                    instance_id, session_timeout_ms, heartbeat_ms, max_poll_interval_ms, tuple(assignors),
                    server_assignor,
                ),
                auto_commit_ms=auto_commit_ms if auto_commit and delivery == "at-least-once" else 0,
                limits=FetchLimits(partition_bytes, fetch_bytes),
                fetch_wait_ms=fetch_wait_ms,
                buffer_bytes=buffer_bytes,
                deserializers=Deserializers(key, value),
            ),
        )  # fmt: skip

    async def open(self, timeout_seconds: float | None = None) -> Self:
        """Connects, and joins the group. TimeoutError if connecting takes longer; `async with` does the same, and
        closes in the end."""
        async with asyncio.timeout(timeout_seconds):
            await self.core.open()
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.end(is_processed=kind is None)

    async def close(self, timeout_seconds: float = DEFAULT_CLOSE_SECONDS) -> None:
        """Commits what was handed out, if it is to commit by itself, and leaves the group. May be called again."""
        await self.end(is_processed=True, timeout_seconds=timeout_seconds)

    async def _stop_handing_out(self, *, is_processed: bool) -> Change:
        """Before it is closed. What is in hand is finished, or is handed back; what its user is to be told."""
        self.core.stop_handing_out(is_processed=is_processed)
        return self.core.part()

    async def end(self, *, is_processed: bool, timeout_seconds: float = DEFAULT_CLOSE_SECONDS) -> None:
        """`is_processed`: whether what was handed out last was processed, too."""
        self.core.stop_handing_out(is_processed=is_processed)
        await self._and_then(self._tell(self.core.part()), self.core.close(timeout_seconds))

    def _drop(self) -> None:
        """Of a blocking consumer that nobody has any more, and nobody has closed."""
        self.core.drop()

    # What to read.

    async def subscribe(
        self, topics: str | Sequence[str] | None = None, *, pattern: str | re.Pattern[str] | None = None
    ) -> None:
        """As a member of the group, in place of what was subscribed to before."""
        subscription = read_subscription(topics, pattern)
        if subscription is None or self.group is None:
            raise ValueError("to subscribe is to be in a group, for some topics")
        await self.core.subscribe(subscription)

    async def unsubscribe(self) -> None:
        """Leaves the group, if it is in one, and reads nothing. `on_revoked` is told before, as by `close`."""
        await self._and_then(self._tell(self.core.part()), self.core.unsubscribe())

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads just these, from where the group has committed, if there is one. No member of the group."""
        named = as_places(partitions)
        await self._and_then(self._tell(self.core.part()), self.core.assign(named))

    async def _part(self) -> Change:
        """What a user of the other face is to be told before the group is left."""
        return self.core.part()

    async def _and_then(self, telling: Coroutine[Any, Any, None], work: Coroutine[Any, Any, None]) -> None:
        """What the user's function raises is raised when the work is done, which must not depend on it."""
        failure: Exception | None = None
        try:
            await telling
        except Exception as error:
            failure = error
        finally:
            await work
        if failure is not None:
            raise failure

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read at the moment."""
        return self.core.assignment

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until `resume`. Others go on, and the group notices nothing."""
        self.core.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Goes on with what `pause` has stopped."""
        self.core.resume(*partitions)()

    async def seek(self, partition: TopicPartition, position: Position) -> None:
        """Goes on from another position: an offset, EARLIEST, LATEST or AtTime."""
        await self.core.seek(partition, position)

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be handed out; -1 as long as that is not known."""
        return self.core.place(partition).position

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are behind the position, by what was fetched last; partitions without news are left out."""
        return self.core.lag()

    def statistics(self) -> ConsumerStatistics:
        """What it has done since it was opened, in numbers."""
        return self.core.statistics()

    def stop(self) -> None:
        """Ends the loop that runs, or, if there is none, the next one, behind the record in hand. From any thread of
        the blocking consumer, and from the event loop of this one; a `poll` that waits returns."""
        self.core.stop()

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

    async def _hand_out(self, opened: Opened[T]) -> AsyncIterator[T]:
        while True:
            out = await self._advance(None)
            if out.is_stopped:
                return
            for one in opened(out):
                yield one

    async def poll(self, wait_ms: int = DEFAULT_WAIT_MS) -> list[Fetched]:
        """What there is, by partition; empty where nothing came within the time.

        What it has returned counts as processed when it is called again.
        """
        deadline = self.core.now() + wait_ms / 1000
        while True:
            out = await self._advance(deadline)
            taken = take_batches(out)
            if taken or out.is_last:
                return taken

    async def _advance(self, deadline: float | None) -> HandOut:
        while True:
            step = await self.core.next(deadline)
            if isinstance(step, HandOut):
                return step
            await self._tell(step)

    async def _tell(self, change: Change) -> None:
        failure: Exception | None = None
        for told, partitions in told_of(self.listeners, change):
            try:
                result = told(partitions)
                if inspect.isawaitable(result):
                    await result
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # Offsets.

    def group_offsets(self) -> GroupOffsets:
        """How far records were handed out, to be committed in a transaction. Does not block."""
        return self.core.group_offsets()

    async def commit(self, offsets: Mapping[TopicPartition, int | Offset] | None = None) -> None:
        """That everything handed out so far is processed; or the offsets given, each of the next record to read."""
        if self.delivery == "exactly-once":
            raise RuntimeError("with exactly-once, offsets are committed by a transaction: t.send_offsets(consumer)")
        await self.core.commit(offsets)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed, of those that have something."""
        return await self.core.committed(partitions)

    async def rewind(self) -> None:
        """Back to what is committed, else to where it began: after a transaction that was aborted, so that nothing is
        left out."""
        await self.core.rewind()

    # A handler.

    async def run(self, handler: Handler, **options: Unpack[RecoveryOptions]) -> None:
        """Calls the handler with each message, one after the other, until `stop`. How slow it is does not matter.

        When it raises, the message is tried again, `retries` times, with pauses that double from `backoff_ms` on.
        Then it goes to the topic `dead_letter`, with the reason in its headers, and its partition goes on; without
        one the error is raised, and the message comes first when `run` is called again. A message that a deserializer
        refuses is treated like that at once. With exactly-once it needs a transactional `producer`: what the handler
        sends with it, the dead letters and the offsets of each batch are one transaction.
        What a failed attempt has sent is undone: the batch is handled again, in another transaction.
        """
        check_functions(handler=handler)
        async with self.recovery(options) as recovery:
            run = self._run_exactly_once if self.delivery == "exactly-once" else self._run
            await run(handler, recovery)

    def recovery(self, options: RecoveryOptions) -> Recovery:
        if self.delivery == "exactly-once" and options.get("producer") is None:
            raise ValueError("to handle exactly once takes a producer with a transactional_id")
        return Recovery(self._bootstrap, self._options, options, is_transactional=self.delivery == "exactly-once")

    async def _run(self, handler: Handler, recovery: Recovery) -> None:
        messages = aiter(self)
        while True:
            try:
                message = await anext(messages)
            except StopAsyncIteration:
                return
            except DeserializationFailed as error:
                await recovery.bury(error.topic, error.partition, error.record, error, 1)
                self.core.skip(error)
                messages = aiter(self)
                continue
            try:
                await self._handle(handler, message, recovery)
            except BaseException:
                self.core.hand_back()
                raise

    async def _run_exactly_once(self, handler: Handler, recovery: Recovery) -> None:
        batches = aiter(self.batches())
        while True:
            failed: DeserializationFailed | None = None
            records: list[Message] = []
            try:
                batch = await anext(batches)
                records = messages_of(batch)
            except StopAsyncIteration:
                return
            except DeserializationFailed as error:
                failed = error
                batches = aiter(self.batches())
            try:
                if failed is not None:
                    await self._bury_in_transaction(failed, recovery)
                else:
                    await self._handle_in_transaction(handler, records, recovery)
            except CommitFailed as error:
                _logger.warning("%s", error)
                self.core.learn_standing()
                self.core.rewind_all()
            except BaseException:
                self.core.rewind_all()
                raise

    async def _bury_in_transaction(self, failed: DeserializationFailed, recovery: Recovery) -> None:
        async with recovery.the_producer.transaction() as transaction:
            await recovery.bury(failed.topic, failed.partition, failed.record, failed, 1)
            self.core.skip(failed)
            await transaction.send_offsets(self)

    async def _handle_in_transaction(self, handler: Handler, messages: list[Message], recovery: Recovery) -> None:
        """What a failed attempt has sent is undone with its transaction, and all of them are handled again."""
        attempts = Attempts(recovery)
        with self.core.handling():
            while True:
                try:
                    async with recovery.the_producer.transaction() as transaction:
                        for message in messages:
                            if attempts.is_given_up(message):
                                await attempts.bury(message)
                                continue
                            try:
                                await _call(handler, message)
                            except Exception as error:
                                raise HandlerFailed(message, error) from error
                        await transaction.send_offsets(self)
                except HandlerFailed as failed:
                    await attempts.note(failed)
                else:
                    return

    async def _handle(self, handler: Handler, message: Message, recovery: Recovery) -> None:
        attempt = 0
        with self.core.handling():
            while True:
                try:
                    await _call(handler, message)
                except Exception as error:
                    attempt += 1
                    if await recovery.shall_try_again(message, error, attempt):
                        continue
                return


async def _call(handler: Handler, message: Message) -> None:
    result = handler(message)
    if inspect.isawaitable(result):
        await result


def messages_of(batch: Fetched) -> list[Message]:
    return [message_of(batch.topic, batch.partition, record) for record in batch.records]
