"""What can go wrong: what happened, to which topic and partition, and whether to try again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.client.advice import ADVICE
from ottla.records.codec import Record
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.client.producer.delivery import Delivery

T = TypeVar("T")


class ClientError(Exception):
    """The root of the family. Its text says what happened, and to which topic and partition.

    `is_retriable`: the same call may succeed later. `advice`, where there is some, is a sentence that says what to
    do; a traceback shows it, too.
    """

    is_retriable: bool = False
    advice: str = ""

    def __init__(self, sentence: str, *, topic: str | None = None, partition: int | None = None) -> None:
        super().__init__(sentence)
        self.topic = topic
        self.partition = partition
        if self.advice:
            self.add_note(self.advice)

    def again(self) -> ClientError:
        """The same error as an object of its own: whoever raises it adds a traceback."""
        return _remake(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (type(self), self.args, self.__dict__)


def _remake(kind: type[ClientError], arguments: tuple[Any, ...], attributes: dict[str, Any]) -> ClientError:
    """Past the constructors, which take other things than they keep."""
    error = kind.__new__(kind, *arguments)
    error.__dict__.update(attributes)
    return error


class BrokerUnreachable(ClientError):
    """No connection could be made, so nothing was sent."""

    is_retriable = True


class ConnectionLost(ClientError):
    """The connection ended before the answer came: nobody knows whether the request was carried out."""

    is_retriable = True


class RequestTimedOut(ClientError):
    """No answer in time: nobody knows whether the request was, or will be, carried out."""

    is_retriable = True


class MalformedAnswer(ClientError):
    """The other side does not speak the protocol, or breaks it."""


class UnsupportedByBroker(ClientError):
    """The broker has no version of the request that can say what was asked for."""


class InvalidRecord(ClientError, ValueError):
    """A record that no broker could take; it was not sent."""


class BufferFull(ClientError):
    """The producer holds as many bytes as it may. Nothing of this record was kept."""

    is_retriable = True
    advice = "Wait for some of what was sent, or raise buffer_bytes."


class DeliveryTimedOut(ClientError):
    """Not acknowledged within the delivery timeout: it may have been written, or not."""

    is_retriable = True
    advice = "See whether the brokers can be reached, or raise delivery_timeout_ms."


class ProducerClosed(ClientError):
    """The producer was closed before the broker acknowledged it: it may have been written, or not."""


class TransactionAborted(ClientError):
    """The record belonged to a transaction that was aborted: no reader of committed records will see it."""


class TransactionUnresolved(ClientError):
    """The end of a transaction was not answered in time: it may be committed, or aborted.

    The producer goes on asking by itself, and its next transaction begins when the outcome is known.
    """

    advice = "Do not send the same again before the next transaction has begun: what was to be committed may be."


class ProducerFenced(ClientError):
    """Another producer has taken over the transactional id. This one cannot go on."""

    advice = "Close this producer; give each running one a transactional_id of its own."


class OffsetMissing(ClientError):
    """The group has no committed offset, or it is not in the partition any more, and no start was given."""


class TopicRecreated(ClientError):
    """The topic was deleted and created again while it was read: the offsets are of records that are gone."""


class LogTruncated(ClientError):
    """The partition has lost the last of the records that were read: a leader was elected that did not have them.

    From `offset` on it has others, or none: there reading may go on.
    """

    advice = "Seek to its offset, and find out what was made of the records that are gone."

    def __init__(self, topic: str, partition: int, read_offset: int, offset: int, epoch: int) -> None:
        super().__init__(
            f"{describe_place(topic, partition)}: what was read up to offset {read_offset} is not in the log any more "
            f"from {offset} on",
            topic=topic,
            partition=partition,
        )
        self.read_offset = read_offset
        self.offset = offset
        self.epoch = epoch

    def at(self, offset: int, epoch: int) -> LogTruncated:
        """The same, with another end of what is still there."""
        return LogTruncated(self.topic or "", self.partition or 0, self.read_offset, offset, epoch)


class DeserializationFailed(ClientError):
    """A deserializer could not read a record's key or value. `record` has it as it came, `cause` why."""

    advice = "Seek past the record, or give run() a dead_letter topic."

    def __init__(self, topic: str, partition: int, record: Record, part: str, cause: Exception) -> None:
        where = f"{describe_place(topic, partition)}, offset {record.offset}"
        super().__init__(f"{where}: the {part} could not be deserialized: {cause!r}", topic=topic, partition=partition)
        self.offset = record.offset
        self.record = record
        self.part = part
        self.cause = cause


class CommitFailed(ClientError):
    """The group has given the partitions to another member, or one of its topics is not there any more: what was read
    since the last commit is read again."""


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
            self.is_retriable = False
            self.name = str(code)
            meaning = f"The broker answered with error {code}."
        else:
            self.code = known
            self.is_retriable = known.retriable
            self.name = known.name
            meaning = known.meaning
        what = about or describe_place(topic, partition)
        sentence = f"{message or meaning} ({self.name})"
        super().__init__(f"{what}: {sentence}" if what else sentence, topic=topic, partition=partition)
        if code in ADVICE:
            self.advice = ADVICE[code]
            self.add_note(self.advice)


class UnknownTopicOrPartition(ServerError):
    """There is no such topic or partition, and there was time for it to appear."""

    def __init__(self, message: str | None = None, *, topic: str, partition: int | None = None) -> None:
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message, topic=topic, partition=partition)
        self.is_retriable = False


class DamagedBatch(ServerError, MalformedAnswer):
    """The broker cannot read the batch at an offset: it has rotted. To ask the same broker again does not help."""

    def __init__(self, offset: int, *, topic: str, partition: int) -> None:
        message = f"a damaged batch at or behind offset {offset}: the broker cannot read it"
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message, topic=topic, partition=partition)
        self.is_retriable = False


class PartlyFailed(ClientError):
    """Some of several things that were asked for at once failed. `done` has the results of the others."""

    def __init__(self, errors: Sequence[ServerError], done: Sequence[Any]) -> None:
        super().__init__("; ".join(map(str, errors)))
        self.errors = errors
        self.done = done
        self.is_retriable = all(error.is_retriable for error in errors)


class DeliveryFailed(ClientError):
    """Some records were not written. `deliveries` says of each, in the order they were given.

    They are empty where `flush` or `close` tells of failures that nobody had asked for.
    """

    def __init__(self, deliveries: Sequence[Delivery]) -> None:
        failed = [delivery for delivery in deliveries if delivery.error is not None]
        share = "" if len(deliveries) == 1 else f"{len(failed):,} of {len(deliveries):,} records were not written: "
        self._tell(share, [delivery.error for delivery in failed if delivery.error is not None])
        self.deliveries = deliveries
        self.topic, self.partition = failed[0].topic, failed[0].partition

    @classmethod
    def unasked(cls, failures: Sequence[tuple[int, ClientError]]) -> DeliveryFailed:
        """How many records, and why, of those that nobody has asked for."""
        failed = cls.__new__(cls)
        count = sum(count for count, _ in failures)
        failed._tell(f"{count:,} records were not written: ", [error for _, error in failures])
        failed.deliveries = ()
        return failed

    def _tell(self, share: str, errors: Sequence[ClientError]) -> None:
        first = errors[0]
        super().__init__(f"{share}{first}", topic=first.topic, partition=first.partition)
        self.error = first
        self.is_retriable = all(error.is_retriable for error in errors)


def describe_place(topic: str | None, partition: int | None) -> str:
    if topic is None:
        return ""
    return f"topic {topic}" if partition is None else f"topic {topic}, partition {partition}"


def raise_for(code: int, message: str | None = None, **place: Any) -> None:
    """Nothing for code 0, else the error."""
    if code:
        raise ServerError(code, message, **place)


def all_or_error(errors: Sequence[ServerError], done: list[T]) -> list[T]:
    """What was done, if nothing failed. The error itself where one thing was asked for, else PartlyFailed."""
    if len(errors) == 1 and not done:
        raise errors[0]
    if errors:
        raise PartlyFailed(errors, done)
    return done
