"""The clients of a checked run, made with ottla.client: `python -m tests.modes.checked_clients PROTOCOL ROLE …`.

They do and write down what those of tests/checker do; PROTOCOL is that of the groups. What a user of ottla.client
leaves to it is left to it: retries, offsets in transactions, and going back after one that was aborted.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self, cast

from ottla.client import (
    Admin,
    BrokerUnreachable,
    ClientOptions,
    CommitFailed,
    Consumer,
    Delivery,
    Isolation,
    Producer,
    TopicPartition,
    Transaction,
)
from ottla.client.consumer.options import GroupProtocol, GuaranteeName
from tests.checker import history
from tests.checker.clients import INPUT, OUTPUT, PARTITIONS, PAUSE_S, WORKERS, Context, main, transactional_id_of
from tests.checker.history import (
    Assigned,
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

READERS = "readers"
POLL_MS = 200
MOST_UNKNOWN_S = 60.0
PATIENT = ClientOptions(connect_timeout_ms=3_000, request_timeout_ms=5_000, retry_timeout_ms=20_000)
protocol: GroupProtocol = "classic"


class Changed(Exception):
    """The client has changed its mind, and aborts."""


def change_sometimes(context: Context, chance: float) -> None:
    if context.random.random() < chance:
        raise Changed


class Sender:
    """Sends values that no one else sends, and writes down what came of them."""

    def __init__(self, context: Context, producer: Producer) -> None:
        self._context = context
        self._producer = producer
        self._count = 0

    def send(self, topic: str, transaction: str | None = None, source: str | None = None) -> None:
        place = Place(topic, self._context.random.randrange(PARTITIONS))
        value = f"{self._context.name}:{self._count}"
        self._count += 1
        add = self._context.history.add
        add(SendInvoked, place=place, value=value, transaction=transaction, source=source)

        def delivered(delivery: Delivery) -> None:
            outcome = Outcome.OK if delivery.error is None else Outcome.UNKNOWN
            add(SendEnded, value=value, outcome=outcome, offset=delivery.offset)

        self._producer.send(place.topic, value.encode(), partition=place.partition, on_delivery=delivered)


class TransactionalSender(Sender):
    def __init__(self, context: Context) -> None:
        """Under an id of its own: a later life fences this one."""
        self._transactional = Producer(
            context.bootstrap,
            linger_ms=1,
            transactional_id=transactional_id_of(context.name),
            transaction_timeout_ms=10_000,
            options=PATIENT,
        )
        super().__init__(context, self._transactional)
        self._transaction_count = 0

    def __enter__(self) -> Self:
        self._transactional.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._transactional.close()

    @contextmanager
    def transaction(self) -> Iterator[tuple[str, Transaction]]:
        """What is raised inside aborts it, and comes out."""
        name = f"{self._context.name}#{self._transaction_count}"
        self._transaction_count += 1
        self._note(name, Step.BEGIN, Outcome.OK)
        is_asked_for = False
        try:
            with self._transactional.transaction() as transaction:
                yield name, transaction
                self._transactional.flush()
                is_asked_for = True
                self._note(name, Step.COMMIT, Outcome.INVOKED)
        except Exception:
            if is_asked_for:
                self._note(name, Step.COMMIT, Outcome.UNKNOWN)
            raise
        self._note(name, Step.COMMIT, Outcome.OK)

    def _note(self, transaction: str, step: Step, outcome: Outcome) -> None:
        self._context.history.add(TransactionStep, transaction=transaction, step=step, outcome=outcome)


class Member:
    """A member of a group that reads what is committed, from where the group is."""

    def __init__(self, context: Context, group: str, topic: str, delivery: GuaranteeName) -> None:
        self._history = context.history
        self._group = group
        self._asked_at_ns = 0
        """Before the offsets of the next assignment are asked for."""
        self.consumer = Consumer(
            context.bootstrap,
            topic,
            group=group,
            delivery=delivery,
            auto_commit=False,
            group_protocol=protocol,
            session_timeout_ms=1_500,
            heartbeat_ms=300,
            fetch_wait_ms=50,
            partition_bytes=4_000,
            on_assigned=self._assigned,
            on_revoked=self._revoked,
            options=PATIENT,
        )

    def __enter__(self) -> Self:
        self.consumer.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.consumer.__exit__(kind)

    def poll(self) -> list[str]:
        self._asked_at_ns = time.monotonic_ns()
        values = []
        for batch in self.consumer.poll(POLL_MS):
            records = tuple((record.offset, (record.value or b"").decode()) for record in batch.records)
            self._history.add(
                Polled,
                place=Place(batch.topic, batch.partition),
                isolation=history.Isolation.COMMITTED,
                records=records,
                next_offset=batch.next_offset,
            )
            values += [value for _, value in records]
        return values

    def note_offsets(self, transaction: str | None = None) -> None:
        for one, offset in self.consumer.group_offsets().offsets.items():
            self._history.add(
                OffsetCommitted,
                group=self._group,
                place=Place(*one),
                offset=offset.offset,
                outcome=Outcome.OK,
                transaction=transaction,
            )

    def rewind(self) -> None:
        self.consumer.rewind()
        for one in self.consumer.assignment:
            self._history.add(Positioned, place=Place(*one), offset=self.consumer.position(one))

    def _assigned(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            offset = self._position(one)
            self._history.add(Assigned, at_ns=self._asked_at_ns, group=self._group, place=Place(*one), offset=offset)
        self._asked_at_ns = time.monotonic_ns()

    def _position(self, one: TopicPartition) -> int:
        """Of a broker that takes long to come back it may not be known yet, and becomes known beside this."""
        deadline = time.monotonic() + MOST_UNKNOWN_S
        while (offset := self.consumer.position(one)) < 0:
            assert time.monotonic() < deadline, f"nobody knows where to begin in {one}"
            time.sleep(PAUSE_S)
        return offset

    def _revoked(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            self._history.add(Revoked, place=Place(*one))
        self._asked_at_ns = time.monotonic_ns()


def produce(context: Context) -> None:
    with Producer(context.bootstrap, linger_ms=1, options=PATIENT) as producer:
        sender = Sender(context, producer)
        while context.is_wanted():
            sender.send(INPUT)
            time.sleep(PAUSE_S)


def transact(context: Context) -> None:
    """Several values to several partitions; some transactions are aborted."""
    with TransactionalSender(context) as sender:
        while context.is_wanted():
            try:
                with sender.transaction() as (name, _):
                    for _ in range(context.random.randint(1, 8)):
                        sender.send(INPUT, name)
                        time.sleep(PAUSE_S)
                    change_sometimes(context, 0.3)
            except Changed:
                continue


def work(context: Context) -> None:
    """Each input becomes an output, in a transaction with the group's offsets; some are aborted and done again."""
    with TransactionalSender(context) as sender, Member(context, WORKERS, INPUT, "exactly-once") as member:
        while context.is_wanted():
            values = member.poll()
            if not values:
                continue
            try:
                with sender.transaction() as (name, transaction):
                    for value in values:
                        sender.send(OUTPUT, name, value)
                    transaction.send_offsets(member.consumer)
                    member.note_offsets(name)
                    change_sometimes(context, 0.1)
            except (Changed, CommitFailed):
                member.rewind()


def read(context: Context) -> None:
    with Member(context, READERS, OUTPUT, "at-least-once") as member:
        while context.is_wanted():
            if member.poll():
                try:
                    member.consumer.commit()
                except CommitFailed:
                    continue
                member.note_offsets()


def follow(context: Context) -> None:
    """Reads everything from the start, whether it is committed or not, in no group."""
    places = [Place(topic, partition) for topic in (INPUT, OUTPUT) for partition in range(PARTITIONS)]
    with Consumer(
        context.bootstrap, isolation=Isolation.READ_UNCOMMITTED, fetch_wait_ms=50, options=PATIENT
    ) as consumer:
        consumer.assign([TopicPartition(*place) for place in places])
        for place in places:
            context.history.add(Positioned, place=place, offset=0)
        while context.is_wanted():
            for batch in consumer.poll(POLL_MS):
                context.history.add(
                    Polled,
                    place=Place(batch.topic, batch.partition),
                    isolation=history.Isolation.UNCOMMITTED,
                    records=tuple((record.offset, (record.value or b"").decode()) for record in batch.records),
                    next_offset=batch.next_offset,
                )


def reached(role: Callable[[Context], None]) -> Callable[[Context], None]:
    """Begins when the broker is there: that nobody listens at an address is told at once."""

    def run(context: Context) -> None:
        while context.is_wanted():
            try:
                with Admin(context.bootstrap, PATIENT):
                    break
            except BrokerUnreachable:
                time.sleep(0.1)
        role(context)

    return run


ROLES = {
    "producer": reached(produce),
    "transactor": reached(transact),
    "worker": reached(work),
    "reader": reached(read),
    "follower": reached(follow),
}

if __name__ == "__main__":
    protocol = cast("GroupProtocol", sys.argv[1])
    main(ROLES, *sys.argv[2:])
