"""Writing DataFrames to topics.

Exactly-once: tasks hand their rows to the driver, and the driver writes them in one transaction, together with what
the sink remembers of itself. Spark decides which attempt of a task counts before anything is written, so neither
a task that is tried again nor a speculative one can write twice. At-least-once: each task writes its own rows.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ottla.client import ClientError, Producer, TopicPartition
from ottla.pipelines.client_options import Cluster
from ottla.pipelines.sink.memory import Batch, Memory, SinkRefused, is_written, read_memory, remember
from ottla.pipelines.sink.options import SinkOptions
from ottla.pipelines.sink.plan import plan_of
from ottla.pipelines.sink.rows import check_schema, tables_by_topic

_QUERY_ID = "sql.streaming.queryId"
_RUN_ID = "spark.jobGroup.id"  # the jobs of a streaming query are a group of this name
_OFFSETS_TOPIC = "__consumer_offsets"  # where offsets are, there it is
_TIME_TO_END_MS = 5_000
_STAGED = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass
class Written(WriterCommitMessage):
    """Of a task that has written its rows itself."""


@dataclass
class Staged(WriterCommitMessage):
    """Of a task that hands over its rows: Arrow streams by topic; and what Spark tells tasks of their query."""

    streams: dict[str, bytes]
    query_id: str | None
    run_id: str | None
    row_count: int = 0

    def rows(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        for topic, stream in self.streams.items():
            for batch in pa.ipc.open_stream(stream):
                yield topic, batch


class Task:
    """What is done with the rows of one task."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def run(self, batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        by_topic = (
            found
            for batch in batches
            for found in tables_by_topic(batch, self._options.topic, with_timestamp=self._options.with_timestamp)
        )
        return self._stage(by_topic) if self._options.is_exactly_once else self._write(by_topic)

    def _write(self, by_topic: Iterable[tuple[str, pa.RecordBatch]]) -> Written:
        with self._options.producer() as producer:
            for topic, rows in by_topic:
                producer.send_many(topic, rows)
        return Written()

    def _stage(self, by_topic: Iterable[tuple[str, pa.RecordBatch]]) -> Staged:
        tables: defaultdict[str, list[pa.RecordBatch]] = defaultdict(list)
        for topic, rows in by_topic:
            tables[topic].append(rows)
        context = TaskContext.get()
        query_id = run_id = None
        if context is not None:
            query_id, run_id = context.getLocalProperty(_QUERY_ID), context.getLocalProperty(_RUN_ID)
        row_count = sum(batch.num_rows for batches in tables.values() for batch in batches)
        streams = {topic: _stream(batches) for topic, batches in tables.items()}
        return Staged(streams, query_id, run_id, row_count)


def _stream(batches: list[pa.RecordBatch]) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batches[0].schema, options=_STAGED) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(out.getvalue())


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic, with_timestamp=options.with_timestamp)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Task(self._options).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        if not any(message.streams for message in staged):
            return
        transactional_id = self._options.transactional_id or f"spark-batch-{uuid.uuid4()}"
        with self._options.producer(transactional_id) as producer, producer.transaction():
            _send(producer, staged)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_schema(schema, options.topic, with_timestamp=options.with_timestamp)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return Task(self._options).run(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            return
        query_id, run_id = staged[0].query_id, staged[0].run_id
        if query_id is None or run_id is None:
            raise SinkRefused(
                "Spark has not told its tasks which query they belong to: delivery cannot be exactly-once"
            )
        rows = sum(message.row_count for message in staged)
        plan = plan_of(self._options.checkpoint, batchId)
        batch = Batch(self._options.generation, query_id, run_id, batchId, rows, plan)
        commit_batch(self._options, batch, staged)


def commit_batch(options: SinkOptions, batch: Batch, staged: list[Staged]) -> None:
    """The batch in one transaction, if it is not there yet.

    First it is looked up without disturbing anybody. Then the producer takes the transactional id over: whoever had it
    is fenced, its transaction ended, and what the memory says now is final until this one's transaction ends.
    """
    transactional_id = options.transactional_id
    assert transactional_id is not None
    memory = _first_look(options.cluster, transactional_id)
    # None may be that of a transaction whose end is not through yet: then there is nobody to disturb.
    if memory is not None and is_written(memory, batch, transactional_id, options.continue_from_batch):
        return
    with options.cluster.admin() as admin, options.producer(transactional_id) as producer:
        memory = read_memory(admin, transactional_id)
        if is_written(memory, batch, transactional_id, options.continue_from_batch):
            return
        place = _place(memory, options.topic, staged)
        with producer.transaction() as transaction:
            _send(producer, staged)
            transaction.send_offsets(remember(memory, batch, place, transactional_id))


def _first_look(cluster: Cluster, transactional_id: str) -> Memory | None:
    """Who writes at this moment is given time to end it. Who died while it did is not waited for: that transaction ends
    when the transactional id is taken over."""
    with contextlib.suppress(ClientError), cluster.hasty(_TIME_TO_END_MS).admin() as admin:
        return read_memory(admin, transactional_id)
    with cluster.admin() as admin:
        return read_memory(admin, transactional_id, must_be_stable=False)


def _send(producer: Producer, staged: Iterable[Staged]) -> None:
    for message in staged:
        for topic, rows in message.rows():
            producer.send_many(topic, rows)


def _place(memory: Memory | None, topic: str | None, staged: Iterable[Staged]) -> TopicPartition:
    """Where the memory is: an offset belongs to a partition, and a batch without rows must be remembered, too."""
    if memory is not None:
        return memory.place
    topics = [topic] if topic is not None else sorted({name for message in staged for name in message.streams})
    return TopicPartition(topics[0] if topics else _OFFSETS_TOPIC, 0)
