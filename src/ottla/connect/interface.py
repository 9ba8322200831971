"""What a connector is: a source yields records with the position behind them, a sink takes batches.

The settings of a connector are the keyword arguments of its constructor, with types that are checked before anything
starts. The constructor keeps them and does nothing else.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

from ottla.client import Message, Reader, TopicPartition
from ottla.records.read import Batch


class ConnectorRefused(Exception):
    """It cannot go on, and trying again would not help; the text says why, and what to do."""


class BadRecord(Exception):
    """A sink cannot take this record, whatever is tried. It goes to the dead letters, if there is a topic for them."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class Fenced(Exception):
    """Another runner has taken over: nothing of this batch was kept."""


class SourceRecord(NamedTuple):
    """What a source writes to a topic. With `problem` it goes to the dead letters, for that reason."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None
    problem: str | None = None


class SourceBatch(NamedTuple):
    """A whole record batch that a source moves on as it is (`Producer.send_batches`)."""

    place: TopicPartition
    batch: bytes | memoryview | Batch
    record_count: int
    token: Any = None
    """What the source knows it by."""

    @property
    def size_bytes(self) -> int:
        return self.batch.header.size if isinstance(self.batch, Batch) else len(self.batch)


class SinkBatch(NamedTuple):
    """Records of one partition. `next_offset` is to be stored with what is made of them, and so is `topic_id`.

    `start_offset` is what was stored before: a sink that finds another offset in its store raises Fenced, for then
    somebody else has written meanwhile. `topic_id` is empty where the cluster has none.
    """

    topic: str
    partition: int
    records: Sequence[Message]
    start_offset: int
    next_offset: int
    topic_id: str = ""

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Finding(NamedTuple):
    """What `check` has found. A problem keeps the connector from starting."""

    text: str
    is_problem: bool = False


class Task:
    """One piece of a connector's work, as the connector sees it."""

    def __init__(
        self, connector: str, number: int = 0, count: int = 1, *, read_topic: Callable[[str], Reader] | None = None,
        create_topic: Callable[..., None] | None = None, count_partitions: Callable[[str], int] | None = None,
    ) -> None:  # fmt: skip
        self.connector = connector
        self.number = number
        self.count = count
        self.lag_seconds: float | None = None
        """How far behind it is, if the connector knows: shown by `status`."""
        self.doing: str | None = None
        """A few words on what it does, for `status`."""
        self.is_commit_wanted = False
        """Set by a source whose next position is to be kept at once, though no record has come: where it begins."""
        self._stopping = threading.Event()
        self._read_topic = read_topic
        self._create_topic = create_topic
        self._count_partitions = count_partitions

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        self._stopping.set()

    def wait(self, seconds: float) -> bool:
        """Whether it is to stop; returns as soon as that is known."""
        return self._stopping.wait(seconds)

    def read_topic(self, topic: str) -> Reader:
        """All that is in a topic now, committed, from its beginning: to learn what was written before."""
        assert self._read_topic is not None
        return self._read_topic(topic)

    def count_partitions(self, topic: str) -> int:
        """Of a topic that is there; 1 where nobody can be asked."""
        return 1 if self._count_partitions is None else self._count_partitions(topic)

    def create_topic(self, topic: str, **options: Any) -> None:
        """Unless it exists. `partitions`, `configs` as in `ottla topics create`."""
        assert self._create_topic is not None
        self._create_topic(topic, **options)


class Connector(ABC):
    """What sources and sinks have in common."""

    kind: ClassVar[str]

    def check(self) -> Iterable[Finding]:
        """Can it reach what it needs, may it, would anything be lost? Changes nothing."""
        return ()

    def count_tasks(self, wanted: int) -> int:
        """Into how many tasks it can be divided; each has a position of its own."""
        return wanted


Yielded = tuple[Sequence[SourceRecord | SourceBatch], Any] | None


class Source(Connector):
    kind = "source"

    @abstractmethod
    def read(self, task: Task, position: Any) -> Iterator[Yielded]:
        """Yields records and the position behind them, which is what this is called with after a restart.

        A position is anything JSON can hold; None is the beginning. None is yielded where there is nothing at the
        moment, at least once a second: what came before is committed then, and the task can end. It ends by the
        generator's `close`.
        """

    def forget(self, connector: str) -> None:
        """Its positions are forgotten: forget what else is kept of it. For `reset`."""

    def placed(self, position: Any, batches: Sequence[tuple[SourceBatch, int]]) -> Any:
        """Called with whole batches and the offsets that they got, before their transaction is committed.

        The position to commit with them.
        """
        return position


class Sink(Connector):
    kind = "sink"
    stores_offsets: ClassVar[bool] = False
    """Whether offsets are stored with the results. Else the group has them, and a batch may come again."""

    def open(self, task: Task) -> None:
        """Connects."""

    def stored_offsets(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The next offset of each that has one stored."""
        return {}

    def stored_topic_ids(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        """Of the topics that the stored offsets are of, where that is known. Another of the same name has others."""
        return {}

    def forget_offsets(self) -> None:
        """Forgets what is stored: for `reset`."""

    @abstractmethod
    def write(self, batch: SinkBatch) -> None:
        """All of the batch or nothing. BadRecord for a record that can never be taken: the batch comes again without
        it. Other errors are tried again."""

    def close(self) -> None:
        """May be called again."""
