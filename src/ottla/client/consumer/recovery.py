"""What happens to a message whose handler fails: again, after a while, and at last to the dead letters."""

from __future__ import annotations

import asyncio
from typing import Any, Self, TypedDict

from ottla.client.group.member import logger
from ottla.client.message import Message
from ottla.client.network.cluster import ClientOptions
from ottla.client.producer.producer import Producer

LONGEST_BACKOFF_MS = 60_000


class RecoveryOptions(TypedDict, total=False):
    """The options of a handler's loop."""

    retries: int
    backoff_ms: int
    dead_letter: str | None
    producer: Any
    """A producer of the consumer's face, to write dead letters with; else there is one of its own."""


class Recovery:
    """A context manager, for the time a handler is run."""

    def __init__(self, bootstrap: str, client_options: ClientOptions, options: RecoveryOptions) -> None:
        self._retries = options.get("retries", 3)
        self._backoff_ms = options.get("backoff_ms", 100)
        self._dead_letter = options.get("dead_letter")
        self._bootstrap = bootstrap
        self._client_options = client_options
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
        if attempt <= self._retries:
            logger.info("attempt %d at %r failed: %r", attempt, message, error)
            await asyncio.sleep(min(self._backoff_ms * 2 ** (attempt - 1), LONGEST_BACKOFF_MS) / 1000)
            return True
        if self._dead_letter is None:
            raise error
        logger.warning("%r goes to %s: %r", message, self._dead_letter, error)
        sent = self.the_producer.send(
            self._dead_letter,
            message.value,
            key=message.key,
            headers=(*message.headers, *_reason(message, error, attempt)),
            timestamp_ms=message.timestamp_ms if message.timestamp_ms >= 0 else None,
        )
        if self._own_producer is not None:
            await sent
        return False


def _reason(message: Message, error: Exception, attempt: int) -> list[tuple[str, bytes]]:
    """Where the message was, and why it is not there any more."""
    return [
        ("dead-letter.topic", message.topic.encode()),
        ("dead-letter.partition", b"%d" % message.partition),
        ("dead-letter.offset", b"%d" % message.offset),
        ("dead-letter.attempts", b"%d" % attempt),
        ("dead-letter.error", type(error).__name__.encode()),
        ("dead-letter.reason", str(error).encode()),
    ]
