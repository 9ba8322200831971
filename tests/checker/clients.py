"""The clients of a run, each a process with a history of its own: `python -m tests.checker.clients`.

A client that meets what it cannot get over ends; whoever runs it starts it again under another name. So does
one that is killed. Told to end, it finishes what it has begun.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from tests.checker.history import (
    Assigned,
    HistoryWriter,
    Isolation,
    OffsetCommitted,
    Outcome,
    Place,
    Polled,
    Positioned,
    Revoked,
    SendEnded,
    SendInvoked,
    Step,
    TransactionStep,
)

INPUT, OUTPUT, TABLE = "input", "output", "table"
KEYS = 20  # of a keeper
IDENTITY = "id"
PARTITIONS = 2
WORKERS = "workers"
CALL_S = 10.0
OFFSETS_S = 3.0
POLL_S = 0.2
MOST_AT_ONCE = 100
PAUSE_S = 0.005
QUIET: dict[str, Any] = {"log_level": 0}


class Context(NamedTuple):
    """What a client is given for its life."""

    bootstrap: str
    name: str
    history: HistoryWriter
    random: random.Random
    is_wanted: Callable[[], bool]


class Sender:
    """Sends values that no one else sends, and writes down what came of them."""

    def __init__(self, context: Context, **options: Any) -> None:
        self._context = context
        common = {"bootstrap.servers": context.bootstrap, "linger.ms": 1, "enable.idempotence": True, **QUIET}
        if "transactional.id" not in options:
            # librdkafka sends what is behind a record that it has given up on in a new epoch: it may be there twice.
            common["message.timeout.ms"] = 0
        self.producer = Producer({**common, **options})
        self._count = 0

    def send(self, place: Place, transaction: str | None = None, source: str | None = None) -> None:
        value = self._next_value()
        self._context.history.add(SendInvoked, place=place, value=value, transaction=transaction, source=source)
        delivered = partial(self._delivered, value)
        self.producer.produce(place.topic, value.encode(), partition=place.partition, on_delivery=delivered)
        self.producer.poll(0)

    def send_with_key(self, place: Place, key: str, *, is_tombstone: bool, transaction: str | None) -> None:
        """A tombstone has no value, so what is sent is known by a header."""
        value = self._next_value()
        self._context.history.add(
            SendInvoked, place=place, value=value, transaction=transaction, key=key, is_tombstone=is_tombstone
        )
        self.producer.produce(
            place.topic,
            None if is_tombstone else value.encode(),
            key.encode(),
            partition=place.partition,
            headers=[(IDENTITY, value.encode())],
            on_delivery=partial(self._delivered, value),
        )
        self.producer.poll(0)

    def _next_value(self) -> str:
        self._count += 1
        return f"{self._context.name}:{self._count - 1}"

    def _delivered(self, value: str, error: KafkaError | None, message: Message) -> None:
        outcome = Outcome.OK if error is None else Outcome.UNKNOWN
        # A batch that was sent again, and that the broker knew, has no offset in its answer.
        offset = None if error is not None else message.offset()
        self._context.history.add(SendEnded, value=value, outcome=outcome, offset=-1 if offset is None else offset)

    def flush(self) -> None:
        if self.producer.flush(CALL_S):
            raise TimeoutError("not all was delivered")


class TransactionalSender(Sender):
    """Under an id of its own: a later life fences this one."""

    def __init__(self, context: Context) -> None:
        transactional_id = transactional_id_of(context.name)
        super().__init__(context, **{"transactional.id": transactional_id, "transaction.timeout.ms": 10_000})
        self.producer.init_transactions(CALL_S)
        self._transaction_count = 0
        self._calls = ThreadPoolExecutor(1)

    def begin(self) -> str:
        transaction = f"{self._context.name}#{self._transaction_count}"
        self._transaction_count += 1
        self.producer.begin_transaction()
        self._note(transaction, Step.BEGIN, Outcome.OK)
        return transaction

    def send_offsets(self, offsets: list[TopicPartition], metadata: object) -> None:
        # The call may wait for ever for a coordinator as it was before its broker was killed (librdkafka 2.16).
        sent = self._calls.submit(self.producer.send_offsets_to_transaction, offsets, metadata, CALL_S)
        sent.result(OFFSETS_S)

    def end(self, transaction: str, step: Step) -> None:
        self._note(transaction, step, Outcome.INVOKED)
        ending = self.producer.commit_transaction if step is Step.COMMIT else self.producer.abort_transaction
        try:
            ending(CALL_S)
        except Exception:
            self._note(transaction, step, Outcome.UNKNOWN)
            raise
        self._note(transaction, step, Outcome.OK)

    def _note(self, transaction: str, step: Step, outcome: Outcome) -> None:
        self._context.history.add(TransactionStep, transaction=transaction, step=step, outcome=outcome)


class Member:
    """A member of a group that reads what is committed, from where the group is."""

    def __init__(self, context: Context, group: str, topic: str) -> None:
        self._history = context.history
        self._group = group
        self._gathered: dict[Place, list[tuple[int, str]]] = {}
        self.metadata: object = None
        """Of the generation that gave it its partitions."""
        self.consumer = Consumer(
            {
                "bootstrap.servers": context.bootstrap,
                "group.id": group,
                "session.timeout.ms": 1_500,
                "heartbeat.interval.ms": 300,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
                **QUIET,
            }
        )
        self.consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)

    def gather(self) -> dict[Place, list[tuple[int, str]]]:
        """What there is, as far as its partitions are still its own."""
        self._gathered = {}
        wait_s = POLL_S
        for _ in range(MOST_AT_ONCE):
            message = self.consumer.poll(wait_s)
            if message is None:
                break
            if message.error() is None:
                self._gathered.setdefault(_place(message), []).append((_offset(message), value_of(message)))
            wait_s = 0
        self._note_polls()
        gathered, self._gathered = self._gathered, {}  # noted once: close revokes, too
        return gathered

    def seek_back(self, gathered: dict[Place, list[tuple[int, str]]]) -> None:
        for place, records in gathered.items():
            self.consumer.seek(TopicPartition(*place, records[0][0]))
            self._history.add(Positioned, place=place, offset=records[0][0])

    def _note_polls(self) -> None:
        for place, records in self._gathered.items():
            note_poll(self._history, place, Isolation.COMMITTED, records)

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        at_ns = time.monotonic_ns()
        positions = consumer.committed(partitions, CALL_S)
        for position in positions:
            position.offset = max(position.offset, 0)
            place = Place(position.topic, position.partition)
            self._history.add(Assigned, at_ns=at_ns, group=self._group, place=place, offset=position.offset)
        self.metadata = consumer.consumer_group_metadata()
        consumer.assign(positions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._note_polls()
        self._gathered = {}
        for partition in partitions:
            self._history.add(Revoked, place=Place(partition.topic, partition.partition))
        consumer.unassign()


def produce(context: Context) -> None:
    sender = Sender(context)
    while context.is_wanted():
        sender.send(_any_place(context, INPUT))
        time.sleep(PAUSE_S)
    sender.flush()


def transact(context: Context) -> None:
    """Several values to several partitions; some transactions are aborted."""
    sender = TransactionalSender(context)
    while context.is_wanted():
        transaction = sender.begin()
        for _ in range(context.random.randint(1, 8)):
            sender.send(_any_place(context, INPUT), transaction)
            time.sleep(PAUSE_S)
        sender.flush()
        sender.end(transaction, Step.ABORT if context.random.random() < 0.3 else Step.COMMIT)


def work(context: Context) -> None:
    """Each input becomes an output, in a transaction with the group's offsets; some are aborted and done again."""
    sender, member = TransactionalSender(context), Member(context, WORKERS, INPUT)
    while context.is_wanted():
        gathered = member.gather()
        if not gathered:
            continue
        transaction = sender.begin()
        for records in gathered.values():
            for _, value in records:
                sender.send(_any_place(context, OUTPUT), transaction, value)
        sender.flush()
        offsets = [TopicPartition(*place, records[-1][0] + 1) for place, records in gathered.items()]
        sender.send_offsets(offsets, member.metadata)
        for place, records in gathered.items():
            _note_offset(context, WORKERS, place, records[-1][0] + 1, transaction)
        if context.random.random() < 0.1:
            sender.end(transaction, Step.ABORT)
            member.seek_back(gathered)
        else:
            sender.end(transaction, Step.COMMIT)


def keep(context: Context) -> None:
    """A table: values of keys of its own, and now and then a deletion; every other one in transactions."""
    is_transactional = context.random.random() < 0.5
    sender = TransactionalSender(context) if is_transactional else Sender(context)
    while context.is_wanted():
        transaction = sender.begin() if isinstance(sender, TransactionalSender) else None
        for _ in range(context.random.randint(1, 8)):
            key = f"{context.name}/{context.random.randrange(KEYS)}"
            place = Place(TABLE, zlib.crc32(key.encode()) % PARTITIONS)
            is_tombstone = context.random.random() < 0.2
            sender.send_with_key(place, key, is_tombstone=is_tombstone, transaction=transaction)
            time.sleep(PAUSE_S)
        if isinstance(sender, TransactionalSender):
            assert transaction is not None
            sender.flush()
            sender.end(transaction, Step.ABORT if context.random.random() < 0.3 else Step.COMMIT)
    sender.flush()


def read(context: Context) -> None:
    group = "readers"
    member = Member(context, group, OUTPUT)
    while context.is_wanted():
        gathered = member.gather()
        offsets = [TopicPartition(*place, records[-1][0] + 1) for place, records in gathered.items()]
        if offsets:
            member.consumer.commit(offsets=offsets, asynchronous=False)
            for place, records in gathered.items():
                _note_offset(context, group, place, records[-1][0] + 1)
    member.consumer.close()


def follow(context: Context) -> None:
    """Reads everything from the start, whether it is committed or not, in no group."""
    options = {"group.id": "unused", "enable.auto.commit": False, "isolation.level": "read_uncommitted", **QUIET}
    consumer = Consumer({"bootstrap.servers": context.bootstrap, "fetch.wait.max.ms": 50, **options})
    places = [Place(topic, partition) for topic in (INPUT, OUTPUT, TABLE) for partition in range(PARTITIONS)]
    for place in places:
        context.history.add(Positioned, place=place, offset=0)
    consumer.assign([TopicPartition(*place, 0) for place in places])
    while context.is_wanted():
        polled: dict[Place, list[tuple[int, str]]] = {}
        for message in consumer.consume(MOST_AT_ONCE, POLL_S):
            if message.error() is None:
                polled.setdefault(_place(message), []).append((_offset(message), value_of(message)))
        for place, records in polled.items():
            note_poll(context.history, place, Isolation.UNCOMMITTED, records)


ROLES: dict[str, Callable[[Context], None]] = {
    "producer": produce,
    "transactor": transact,
    "keeper": keep,
    "worker": work,
    "reader": read,
    "follower": follow,
}


def transactional_id_of(name: str) -> str:
    """The same in all lives of a client: a name is that of the client, a dot, and the number of its life."""
    return name.partition(".")[0]


def note_poll(history: HistoryWriter, place: Place, isolation: Isolation, records: Sequence[tuple[int, str]]) -> None:
    next_offset = records[-1][0] + 1
    history.add(Polled, place=place, isolation=isolation, records=tuple(records), next_offset=next_offset)


def _note_offset(context: Context, group: str, place: Place, offset: int, transaction: str | None = None) -> None:
    context.history.add(
        OffsetCommitted, group=group, place=place, offset=offset, outcome=Outcome.OK, transaction=transaction
    )


def _any_place(context: Context, topic: str) -> Place:
    return Place(topic, context.random.randrange(PARTITIONS))


def _place(message: Message) -> Place:
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return Place(topic, partition)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def value_of(message: Message) -> str:
    """What was sent, as the history calls it."""
    value = dict(message.headers() or ()).get(IDENTITY, message.value())
    assert isinstance(value, bytes)
    return value.decode()


def main(roles: Mapping[str, Callable[[Context], None]], *arguments: str) -> None:
    role, name, bootstrap, folder, seed = arguments
    wanted = [True]
    signal.signal(signal.SIGTERM, lambda *_: wanted.clear())
    history = HistoryWriter(Path(folder) / name, name)
    try:
        roles[role](Context(bootstrap, name, history, random.Random(seed), lambda: bool(wanted)))
    except Exception as failure:
        print(f"{name}: {failure!r}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)  # at once: what the libraries would still do is not part of the history


if __name__ == "__main__":
    main(ROLES, *sys.argv[1:])
