"""The blocking face of the consumer: one crossing to the client's thread for all that is fetched together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from ottla.client.blocking import Blocking, Face
from ottla.client.consumer import consumer
from ottla.client.consumer.fetched_data import Fetched
from ottla.client.consumer.hand_out import hand_out, hand_out_arrow, hand_out_batches, hand_out_messages
from ottla.client.consumer.options import ConsumerOptions, Listeners
from ottla.client.consumer.partition_position import Held
from ottla.client.consumer.recovery import Recovery, RecoveryOptions
from ottla.client.errors import CommitFailed
from ottla.client.group.member import Change, logger
from ottla.client.group.offsets import GroupOffsets, TopicPartition
from ottla.client.message import Message

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class Consumer(Face[consumer.Consumer]):
    __doc__ = consumer.Consumer.__doc__

    def __init__(
        self, bootstrap: str, topics: str | Sequence[str] | None = None, **options: Unpack[ConsumerOptions]
    ) -> None:
        super().__init__(consumer.Consumer(bootstrap, topics, **options))
        self._listeners = self._core.listeners
        # They are called in the thread of whoever polls, where they may block.
        self._core.listeners = Listeners()

    subscribe = Blocking(consumer.Consumer.subscribe)
    unsubscribe = Blocking(consumer.Consumer.unsubscribe)
    assign = Blocking(consumer.Consumer.assign)
    seek = Blocking(consumer.Consumer.seek)
    commit = Blocking(consumer.Consumer.commit)
    committed = Blocking(consumer.Consumer.committed)
    rewind = Blocking(consumer.Consumer.rewind)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(is_processed=kind is None)

    def close(self) -> None:
        """Commits what was handed out, if it is to commit by itself, and leaves the group."""
        self._end(is_processed=True)

    def _end(self, *, is_processed: bool) -> None:
        if self._thread.is_closed:
            return
        try:
            for told, partitions in consumer.told_of(self._listeners, Change(revoked=self.assignment)):
                told(partitions)
            self._thread.run(self._core.end, is_processed=is_processed)
        finally:
            self._thread.close()

    # What is read.

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
        self._thread.call(self._core.resume, *partitions)

    def position(self, partition: TopicPartition) -> int:
        """The next offset to be handed out."""
        return self._core.position(partition)

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets are behind the position, by what was fetched last; partitions without news are left out."""
        return self._core.lag()

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

    def poll(self, wait_ms: int = consumer.DEFAULT_WAIT_MS) -> list[Fetched]:
        """What there is, by partition; empty where nothing came within the time."""
        return list(hand_out(self._core, self._advance(wait_ms), hand_out_batches))

    def _hand_out(self, opened: Callable[[Any, Held], Iterator[T]]) -> Iterator[T]:
        while True:
            yield from self._core.keep(hand_out(self._core, self._advance(None), opened))

    def _advance(self, wait_ms: int | None) -> Iterable[Held]:
        while True:
            step = self._thread.run(self._core.next, wait_ms)
            if not isinstance(step, Change):
                return step
            for told, partitions in consumer.told_of(self._listeners, step):
                told(partitions)

    # A handler.

    def run(self, handler: Callable[[Message], Any], **options: Unpack[RecoveryOptions]) -> None:
        """Calls the handler with each message, one after the other, for ever. How slow it is does not matter.

        When it raises, the message is tried again, `retries` times, with pauses that double from `backoff_ms` on.
        Then it goes to the topic `dead_letter`, with the reason in its headers, and its partition goes on; without
        one the error is raised. With exactly-once it needs a transactional `producer`: what the handler sends with
        it, the dead letters and the offsets of each batch are one transaction.
        """
        recovery = self._core.recovery(options)
        self._thread.run(recovery.__aenter__)
        try:
            if self._core.delivery != "exactly-once":
                for message in self:
                    self._handle(handler, message, recovery)
                return
            for batch in self.batches():
                try:
                    with recovery.the_producer.transaction() as transaction:
                        for record in batch.records:
                            self._handle(handler, Message(batch.topic, batch.partition, record), recovery)
                        transaction.send_offsets(self)
                except CommitFailed as error:
                    logger.warning("%s", error)
                    self.rewind()
        finally:
            self._thread.run(recovery.__aexit__, None, None, None)

    def _handle(self, handler: Callable[[Message], Any], message: Message, recovery: Recovery) -> None:
        attempt = 0
        with self._core.handling():
            while True:
                try:
                    handler(message)
                except Exception as error:
                    attempt += 1
                    if self._thread.run(recovery.shall_try_again, message, error, attempt):
                        continue
                return
