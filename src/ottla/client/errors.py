"""What can go wrong: what happened, to which topic and partition, and whether to try again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.producer import Delivery


class ClientError(Exception):
    """The root of the family. Its text is a sentence for people."""

    retriable: bool = False

    def __init__(self, sentence: str, *, topic: str | None = None, partition: int | None = None) -> None:
        super().__init__(sentence)
        self.topic = topic
        self.partition = partition


class BrokerUnreachable(ClientError):
    """No connection could be made, so nothing was sent."""

    retriable = True


class ConnectionLost(ClientError):
    """The connection ended before the answer came: nobody knows whether the request was carried out."""

    retriable = True


class RequestTimedOut(ClientError):
    """No answer in time: nobody knows whether the request was, or will be, carried out."""

    retriable = True


class MalformedAnswer(ClientError):
    """The other side does not speak the protocol, or breaks it."""


class UnsupportedByBroker(ClientError):
    """The broker has no version of the request that can say what was asked for."""


class InvalidRecord(ClientError, ValueError):
    """A record that no broker could take; it was not sent."""


class ServerError(ClientError):
    """The broker answered with an error code. A code that nobody has named yet is a plain number."""

    def __init__(
        self, code: int, message: str | None = None, *, about: str = "", topic: str | None = None,
        partition: int | None = None,
    ) -> None:  # fmt: skip
        self.code: int = code
        self.message = message
        try:
            known = ErrorCode(code)
        except ValueError:
            self.retriable = False
            self.name = str(code)
            meaning = f"The broker answered with error {code}."
        else:
            self.code = known
            self.retriable = known.retriable
            self.name = known.name
            meaning = known.meaning
        what = about or describe_place(topic, partition)
        sentence = f"{message or meaning} ({self.name})"
        super().__init__(f"{what}: {sentence}" if what else sentence, topic=topic, partition=partition)


class UnknownTopicOrPartition(ServerError):
    """There is no such topic or partition, and there was time for it to appear."""

    def __init__(self, message: str | None = None, *, topic: str, partition: int | None = None) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, topic=topic, partition=partition)
        self.retriable = False


class PartlyFailed(ClientError):
    """Some of several things that were asked for at once failed. `done` has the results of the others."""

    def __init__(self, errors: Sequence[ServerError], done: Sequence[Any]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors
        self.done = done
        self.retriable = all(error.retriable for error in errors)


class DeliveryFailed(ClientError):
    """Some records were not written. `deliveries` says of each, in the order they were given."""

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        self.deliveries = deliveries
        failed = [delivery for delivery in deliveries if delivery.error is not None]
        first = failed[0]
        self.error = first.error
        share = "" if len(deliveries) == 1 else f"{len(failed):,} of {len(deliveries):,} records were not written: "
        super().__init__(f"{share}{first.error}", topic=first.topic, partition=first.partition)
        self.retriable = all(delivery.error.retriable for delivery in failed if delivery.error is not None)


def describe_place(topic: str | None, partition: int | None) -> str:
    if topic is None:
        return ""
    return f"topic {topic}" if partition is None else f"topic {topic}, partition {partition}"


def raise_for(code: int, message: str | None = None, **place: Any) -> None:
    """Nothing for code 0, else the error."""
    if code:
        raise ServerError(code, message, **place)
