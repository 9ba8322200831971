"""Messages that are no changes, sent where somebody may look at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.client import ClientError, DeliveryFailed, InvalidRecord, NewRecord, Producer, ServerError

_TOO_LARGE = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")
_MOST_KEY_BYTES = 10_000


@dataclass(frozen=True)
class DeadLetters:
    """Where messages go that are no changes."""

    bootstrap: str
    topic: str


@dataclass(frozen=True, slots=True)
class BadMessage:
    topic: str | None
    partition: int | None
    offset: int | None
    key: bytes | None
    value: bytes | None
    reason: str

    def __str__(self) -> str:
        place = "a row of the source"
        if self.topic is not None:
            place = f"{self.topic}, partition {self.partition}, offset {self.offset}"
        return f"{place}: {self.reason}"


def send_dead_letters(letters: DeadLetters, bad: Sequence[BadMessage]) -> None:
    """Each with its own key and value, and in headers where it came from and what is wrong with it.

    With these headers a message may be too large for a topic: then its letter says so, and goes without it.
    """
    with Producer(letters.bootstrap, create_topics=True) as producer:
        try:
            producer.send_many(letters.topic, [_letter(message) for message in bad])
        except (DeliveryFailed, InvalidRecord) as error:
            if not _is_too_large(error):
                raise
            _send_singly(producer, letters.topic, bad)


def _send_singly(producer: Producer, topic: str, bad: Sequence[BadMessage]) -> None:
    for message in bad:
        try:
            producer.send_many(topic, [_letter(message)])
        except (DeliveryFailed, InvalidRecord) as error:
            if not _is_too_large(error):
                raise
            producer.send_many(topic, [_short_letter(message)])


def _letter(message: BadMessage) -> NewRecord:
    return NewRecord(message.value, key=message.key, headers=_headers(message))


def _short_letter(message: BadMessage) -> NewRecord:
    key = message.key if message.key is None or len(message.key) <= _MOST_KEY_BYTES else None
    left_out = f"the value of {len(message.value or b'')} bytes: it is too large for this topic"
    return NewRecord(None, key=key, headers=[*_headers(message), ("ottla.left-out", left_out.encode())])


def _headers(message: BadMessage) -> list[tuple[str, bytes | None]]:
    return [
        ("ottla.error", message.reason.encode()),
        ("ottla.topic", (message.topic or "").encode()),
        ("ottla.partition", str(message.partition).encode()),
        ("ottla.offset", str(message.offset).encode()),
    ]


def _is_too_large(error: DeliveryFailed | InvalidRecord) -> bool:
    if isinstance(error, InvalidRecord):
        return True
    return any(_is_of_size(delivery.error) for delivery in error.deliveries)


def _is_of_size(error: ClientError | None) -> bool:
    return isinstance(error, InvalidRecord) or (isinstance(error, ServerError) and error.name in _TOO_LARGE)
