"""What happens to a message whose handler fails: again, after a while, and at last to the dead letters."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any, Self, TypedDict

from ottla.client.checks import check_numbers, why_no_topic
from ottla.client.message import Message
from ottla.client.network.cluster import ClientOptions
from ottla.client.producer.producer import Producer
from ottla.client.serde.binding import Serialized
from ottla.records.codec import Record

_logger = logging.getLogger("ottla.client")

LONGEST_BACKOFF_MS = 60_000
LEAST = {"retries": 0, "backoff_ms": 0}


class RecoveryOptions(TypedDict, total=False):
    """The options of a handler's loop."""

    retries: int
    backoff_ms: int
    dead_letter: str | None
    producer: Any
    """A producer of the consumer's face, to write dead letters with; else there is one of its own."""


class Recovery:
    """A context manager, for the time a handler is run."""

    def __init__(
        self, bootstrap: str | Sequence[str], client_options: ClientOptions, options: RecoveryOptions, *,
        is_transactional: bool,
    ) -> None:  # fmt: skip
        _check(options)
        self._retries = options.get("retries", 3)
        self._backoff_ms = options.get("backoff_ms", 100)
        self._dead_letter = options.get("dead_letter")
        self._bootstrap = bootstrap if isinstance(bootstrap, str) else ",".join(bootstrap)
        self._client_options = client_options
        self._is_transactional = is_transactional
        self._own_producer: Producer | None = None
        self.the_producer: Any = options.get("producer")

    async def __aenter__(self) -> Self:
        if self._dead_letter is not None and self.the_producer is None:
            self._own_producer = Producer(self._bootstrap, options=self._client_options, linger_ms=0)
            self.the_producer = await self._own_producer.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._own_producer is not None:
            await self._own_producer.close()

    async def shall_try_again(self, message: Message, error: Exception, attempt: int) -> bool:
        """After a pause. Else it is with the dead letters now; without such a topic the error is raised."""
        if await self.has_paused(message, error, attempt):
            return True
        await self.bury(message.topic, message.partition, message.raw, error, attempt)
        return False

    async def has_paused(self, message: Message, error: Exception, attempt: int) -> bool:
        """Whether there is another attempt, for which it is time now."""
        if attempt > self._retries:
            return False
        _logger.info("attempt %d at %r failed: %r", attempt, message, error)
        await asyncio.sleep(min(self._backoff_ms * 2 ** min(attempt - 1, 60), LONGEST_BACKOFF_MS) / 1000)
        return True

    @property
    def has_dead_letters(self) -> bool:
        return self._dead_letter is not None

    async def bury(
        self, topic: str | None, partition: int | None, record: Record, error: Exception, attempts: int
    ) -> None:
        """To the dead letters, as it came; without such a topic the error is raised."""
        if self._dead_letter is None:
            raise error
        _logger.warning("%s-%s at %d goes to %s: %r", topic, partition, record.offset, self._dead_letter, error)
        reason = [
            ("dead-letter.topic", (topic or "").encode()),
            ("dead-letter.partition", b"%d" % (partition or 0)),
            ("dead-letter.offset", b"%d" % record.offset),
            ("dead-letter.attempts", b"%d" % attempts),
            ("dead-letter.error", type(error).__name__.encode()),
            ("dead-letter.reason", str(error).encode(errors="backslashreplace")),
        ]
        sent = self.the_producer.send(
            self._dead_letter,
            None if record.value is None else Serialized(record.value),
            key=None if record.key is None else Serialized(record.key),
            headers=(*record.headers, *reason),
            timestamp_ms=record.timestamp if record.timestamp >= 0 else None,
        )
        if not self._is_transactional:  # else its transaction waits for it
            await sent


class HandlerFailed(Exception):
    """Inside a transaction, which is aborted by it."""

    def __init__(self, message: Message, error: Exception) -> None:
        super().__init__(message, error)
        self.message = message
        self.error = error


class Attempts:
    """At the messages of one partition that are handled in one transaction: how often each has failed."""

    def __init__(self, recovery: Recovery) -> None:
        self._recovery = recovery
        self._failures: Counter[int] = Counter()
        self._given_up: dict[int, Exception] = {}

    def is_given_up(self, message: Message) -> bool:
        return message.offset in self._given_up

    async def bury(self, message: Message) -> None:
        error, count = self._given_up[message.offset], self._failures[message.offset]
        await self._recovery.bury(message.topic, message.partition, message.raw, error, count)

    async def note(self, failed: HandlerFailed) -> None:
        """After a pause there is another attempt, or the message is given up; without dead letters, the error."""
        message, error = failed.message, failed.error
        self._failures[message.offset] += 1
        if not await self._recovery.has_paused(message, error, self._failures[message.offset]):
            if not self._recovery.has_dead_letters:
                raise error
            self._given_up[message.offset] = error


def _check(options: RecoveryOptions) -> None:
    unknown = sorted(set(options) - set(RecoveryOptions.__annotations__))
    if unknown:
        raise TypeError(f"run() has no option {unknown[0]!r}: it has {', '.join(RecoveryOptions.__annotations__)}")
    check_numbers(dict(options), LEAST)
    topic = options.get("dead_letter")
    if topic is not None and (reason := why_no_topic(topic)):
        raise ValueError(f"dead_letter: {reason}")
