"""The blocking face of the consumer: one crossing to the client's thread for all that is fetched together."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ottla.client.blocking import Blocking, Face, options_of
from ottla.client.checks import check_functions
from ottla.client.consumer import consumer
from ottla.client.consumer.core import DEFAULT_WAIT_MS
from ottla.client.consumer.fetched_data import Fetched
from ottla.client.consumer.hand_out import (
    HandOut,
    Opened,
    hand_out_arrow,
    hand_out_batches,
    hand_out_messages,
    take_batches,
)
from ottla.client.consumer.options import ConsumerOptions, Listeners, told_of
from ottla.client.consumer.recovery import Attempts, HandlerFailed, Recovery, RecoveryOptions
from ottla.client.consumer.statistics import ConsumerStatistics
from ottla.client.errors import CommitFailed, DeserializationFailed
from ottla.client.group.machine import Change
from ottla.client.group.offsets import GroupOffsets, TopicPartition, as_places
from ottla.client.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

_logger = logging.getLogger("ottla.client")

T = TypeVar("T")


class Consumer(Face[consumer.Consumer]):
    __doc__ = consumer.Consumer.__doc__

    @options_of(consumer.Consumer)
    def __init__(
        self, bootstrap: str | Sequence[str], topics: str | Sequence[str] | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:  # fmt: skip
        super().__init__(consumer.Consumer(bootstrap, topics, **options))
        self._listeners = self._core.listeners
        # They are called in the thread of whoever polls, where they may block.
        self._core.listeners = Listeners()

    subscribe = Blocking(consumer.Consumer.subscribe)
    seek = Blocking(consumer.Consumer.seek)
    commit = Blocking(consumer.Consumer.commit)
    committed = Blocking(consumer.Consumer.committed)
    rewind = Blocking(consumer.Consumer.rewind)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(is_processed=kind is None, timeout_seconds=consumer.DEFAULT_CLOSE_SECONDS)

    def close(self, timeout_seconds: float = consumer.DEFAULT_CLOSE_SECONDS) -> None:
        """Commits what was handed out, if it is to commit by itself, and leaves the group. May be called again."""
        self._end(is_processed=True, timeout_seconds=timeout_seconds)

    def _end(self, *, is_processed: bool, timeout_seconds: float) -> None:
        with self._closed_once() as is_mine:
            if not is_mine:
                return
            try:
                self._tell(self._thread.run(self._core._stop_handing_out, is_processed=is_processed))
            finally:
                self._thread.run(self._core.end, is_processed=is_processed, timeout_seconds=timeout_seconds)

    # What is read.

    def unsubscribe(self) -> None:
        """Leaves the group, if it is in one, and reads nothing. `on_revoked` is told before, as by `close`."""
        try:
            self._tell(self._thread.run(self._core._part))
        finally:
            self._thread.run(self._core.unsubscribe)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Reads just these, from where the group has committed, if there is one. No member of the group."""
        named = as_places(partitions)
        try:
            self._tell(self._thread.run(self._core._part))
        finally:
            self._thread.run(self._core.assign, named)

    @property
    def group(self) -> str | None:
        return self._core.group

    @property
    def delivery(self) -> str:
        return self._core.delivery

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """What is read at the moment."""
        return self._core.assignment

    def pause(self, *partitions: TopicPartition) -> None:
        """Hands out nothing of these until `resume`. Others go on, and the group notices nothing."""
        self._core.pause(*partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Goes on with what `pause` has stopped."""
        self._thread.call(self._core.core.resume(*partitions))

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be handed out; -1 as long as that is not known."""
        return self._core.position(partition)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are behind the position, by what was fetched last; partitions without news are left out."""
        return self._core.lag()

    def statistics(self) -> ConsumerStatistics:
        """What it has done since it was opened, in numbers."""
        return self._core.statistics()

    def stop(self) -> None:
        """Ends the loop that runs, or, if there is none, the next one, behind the record in hand. From any thread; a
        `poll` that waits returns."""
        if self._thread.is_here:
            self._thread.call(self._core.stop)
        else:
            self._core.stop()

    def group_offsets(self) -> GroupOffsets:
        """How far records were handed out, to be committed in a transaction. Does not block."""
        return self._core.group_offsets()

    # Handing out.

    def __iter__(self) -> Iterator[Message]:
        return self._hand_out(hand_out_messages)

    def batches(self) -> Iterator[Fetched]:
        """Records of one partition at a time, as many as came together."""
        return self._hand_out(hand_out_batches)

    def arrow_batches(self, *, with_headers: bool = False) -> Iterator[pa.RecordBatch]:
        """The same as Arrow: topic, partition, offset, timestamp, key, value, and headers if they are asked for."""
        return self._hand_out(hand_out_arrow(with_headers=with_headers))

    def poll(self, wait_ms: int = DEFAULT_WAIT_MS) -> list[Fetched]:
        """What there is, by partition; empty where nothing came within the time.

        What it has returned counts as processed when it is called again.
        """
        core = self._core.core
        deadline = core.now() + wait_ms / 1000
        while True:
            out = self._advance(deadline)
            taken = take_batches(out)
            if taken or out.is_last:
                return taken

    def _hand_out(self, opened: Opened[T]) -> Iterator[T]:
        while True:
            out = self._advance(None)
            if out.is_stopped:
                return
            yield from opened(out)

    def _advance(self, deadline: float | None) -> HandOut:
        while True:
            step = self._thread.run(self._core.core.next, deadline)
            if isinstance(step, HandOut):
                return step
            self._tell(step)

    def _tell(self, change: Change) -> None:
        failure: Exception | None = None
        for told, partitions in told_of(self._listeners, change):
            try:
                told(partitions)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure

    # A handler.

    def run(self, handler: Callable[[Message], Any], **options: Unpack[RecoveryOptions]) -> None:
        check_functions(handler=handler)
        recovery = self._core.recovery(options)
        self._thread.run(recovery.__aenter__)
        try:
            run = self._run_exactly_once if self._core.delivery == "exactly-once" else self._run
            run(handler, recovery)
        finally:
            self._thread.run(recovery.__aexit__, None, None, None)

    run.__doc__ = consumer.Consumer.run.__doc__

    def _run(self, handler: Callable[[Message], Any], recovery: Recovery) -> None:
        core = self._core.core
        messages = iter(self)
        while True:
            try:
                message = next(messages, None)
            except DeserializationFailed as error:
                self._thread.run(recovery.bury, error.topic, error.partition, error.record, error, 1)
                core.skip(error)
                messages = iter(self)
                continue
            if message is None:
                return
            try:
                self._handle(handler, message, recovery)
            except BaseException:
                core.hand_back()
                raise

    def _run_exactly_once(self, handler: Callable[[Message], Any], recovery: Recovery) -> None:
        core = self._core.core
        batches = self.batches()
        while True:
            failed: DeserializationFailed | None = None
            batch: Fetched | None = None
            try:
                batch = next(batches, None)
                if batch is None:
                    return
            except DeserializationFailed as error:
                failed = error
                batches = self.batches()
            try:
                if batch is not None:
                    self._handle_in_transaction(handler, consumer.messages_of(batch), recovery)
                elif failed is not None:
                    self._bury_in_transaction(failed, recovery)
            except CommitFailed as error:
                _logger.warning("%s", error)
                core.learn_standing()
                core.start_rewinding()
            except BaseException:
                core.start_rewinding()
                raise

    def _bury_in_transaction(self, failed: DeserializationFailed, recovery: Recovery) -> None:
        with recovery.the_producer.transaction() as transaction:
            self._thread.run(recovery.bury, failed.topic, failed.partition, failed.record, failed, 1)
            self._core.core.skip(failed)
            transaction.send_offsets(self)

    def _handle_in_transaction(
        self, handler: Callable[[Message], Any], messages: list[Message], recovery: Recovery
    ) -> None:
        """What a failed attempt has sent is undone with its transaction, and all of them are handled again."""
        attempts = Attempts(recovery)
        with self._core.core.handling():
            while True:
                try:
                    with recovery.the_producer.transaction() as transaction:
                        for message in messages:
                            if attempts.is_given_up(message):
                                self._thread.run(attempts.bury, message)
                                continue
                            try:
                                handler(message)
                            except Exception as error:
                                raise HandlerFailed(message, error) from error
                        transaction.send_offsets(self)
                except HandlerFailed as failed:
                    self._thread.run(attempts.note, failed)
                else:
                    return

    def _handle(self, handler: Callable[[Message], Any], message: Message, recovery: Recovery) -> None:
        attempt = 0
        with self._core.core.handling():
            while True:
                try:
                    handler(message)
                except Exception as error:
                    attempt += 1
                    if self._thread.run(recovery.shall_try_again, message, error, attempt):
                        continue
                return
