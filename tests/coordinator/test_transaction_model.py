"""Coordinator, partitions and clients with a network between them that delays, repeats, reorders and loses.

The coordinator may crash between any two steps. Whatever happens, a transaction of version 2 ends in all partitions
in the same way, which is the one its client was told; none of its records gets into another one; and a producer that
was replaced never writes again. Clients of version 1 are among them, and are promised less.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.operation import Markers
from ottla.coordinator.transactions.transaction import AT_REST, LAST_EPOCH, VERSION_1, VERSION_2
from ottla.log.errors import CoordinatorFenced, InvalidProducerEpoch, LogError
from ottla.log.producers import Origin, Producers
from ottla.records.batch import TRANSACTIONAL, BatchHeader
from ottla.records.build import ControlMarker
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.transaction_records import TransactionLogKey
from tests.coordinator.transactions import Transactions

IDS = ("a", "b", "old")
VERSIONS = {"a": VERSION_2, "b": VERSION_2, "old": VERSION_1}
PARTITIONS = (0, 1)
MOST_SESSIONS = 6


@dataclasses.dataclass(eq=False)
class Session:
    """One life of a client. It has a transaction at a time, and each has a number of its own."""

    transactional_id: str
    generation: int
    producer: tuple[int, int]
    transaction: int | None = None
    is_committing: bool | None = None  # what it has asked for and waits to hear
    is_broken: bool = False
    is_over: bool = False
    sequences: dict[int, int] = dataclasses.field(default_factory=lambda: defaultdict(int))
    unacknowledged: set[tuple[int, int]] = dataclasses.field(default_factory=set)

    @property
    def version(self) -> int:
        return VERSIONS[self.transactional_id]


class Write(NamedTuple):
    session: Session
    producer: tuple[int, int]
    partition: int
    sequence: int
    transaction: int


class End(NamedTuple):
    session: Session
    producer: tuple[int, int]
    is_commit: bool
    transaction: int


class Mark(NamedTuple):
    sending: Sending
    partition: int


@dataclasses.dataclass(eq=False)
class Sending:
    markers: Markers
    life: int  # of the coordinator
    left: set[int]


class Partition:
    """The producers as brokers know them, and what became of the records."""

    def __init__(self) -> None:
        self.producers = Producers()
        self.transactions: list[int | None] = []  # by offset; None is a marker
        self.by: list[int] = []  # the producer id
        self.is_committed: list[bool | None] = []
        self.mixed: list[set[int]] = []  # the transactions that one marker has ended

    def append(self, header: BatchHeader, transaction: int) -> bool:
        """Whether it is new."""
        if self.producers.find_duplicate(header) is not None:
            return False
        self.producers.check(header, Origin.CLIENT, new_epoch_starts_at_zero=True)
        self.producers.appended(header, len(self.by))
        self._add(header.producer_id, transaction)
        return True

    def mark(self, markers: Markers) -> None:
        marker = ControlMarker(markers.is_commit, markers.coordinator_epoch)
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        self.producers.check_marker(producer_id, epoch, marker, transaction_version=markers.transaction_version)
        completed = self.producers.marked(header_of((producer_id, epoch), -1), len(self.by), marker)
        if completed is not None:
            ended = set()
            for offset in range(completed.first_offset, len(self.by)):
                transaction = self.transactions[offset]
                if self.by[offset] == producer_id and transaction is not None and self.is_committed[offset] is None:
                    self.is_committed[offset] = markers.is_commit
                    ended.add(transaction)
            self.mixed.append(ended)
        self._add(producer_id, None)

    def _add(self, producer_id: int, transaction: int | None) -> None:
        self.by.append(producer_id)
        self.transactions.append(transaction)
        self.is_committed.append(None)


def header_of(producer: tuple[int, int], sequence: int) -> BatchHeader:
    return BatchHeader(0, 49, -1, 2, 0, TRANSACTIONAL, 0, 1000, 1000, *producer, sequence, 1)


class TransactionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.coordinator = Transactions()
        self.partitions = [Partition() for _ in PARTITIONS]
        self.network: list[Write | End | Mark] = []
        self.sessions: list[Session] = []
        self.generations: dict[str, int] = dict.fromkeys(IDS, 0)
        self.life = 0
        self.transaction_count = 0
        self.owners: dict[int, str] = {}
        self.acknowledged: dict[int, set[tuple[int, int]]] = defaultdict(set)
        self.committing: set[int] = set()  # what clients have asked for
        self.told: dict[int, bool] = {}  # how a transaction ended, as its client knows

    @initialize()
    def begin(self) -> None:
        """One of the ids has nearly used up its epochs."""
        self.coordinator.init("b")
        transaction = self.coordinator["b"]._replace(producer_epoch=LAST_EPOCH - 3)
        key = TransactionLogKey(transactional_id="b")
        self.coordinator.driver.run(lambda machine, operation: operation.write(key, transaction.to_value(), 1))
        for transactional_id in IDS:
            self.start_session(transactional_id)

    # Clients

    @precondition(lambda self: sum(self.generations.values()) < MOST_SESSIONS)
    @rule(transactional_id=st.sampled_from(IDS))
    def start_session(self, transactional_id: str) -> None:
        code, *producer = self.coordinator.init(transactional_id)
        self._send_markers()
        if code is ErrorCode.NONE:
            self.generations[transactional_id] += 1
            generation = self.generations[transactional_id]
            self.sessions.append(Session(transactional_id, generation, (producer[0], producer[1])))

    def _usable(self) -> list[Session]:
        return [session for session in self.sessions if not session.is_over]

    @precondition(lambda self: self._usable())
    @rule(data=st.data(), partition=st.sampled_from(PARTITIONS))
    def write(self, data: st.DataObject, partition: int) -> None:
        self._write(data.draw(st.sampled_from(self._usable())), partition)

    def _write(self, session: Session, partition: int) -> None:
        if session.is_committing is not None or session.is_broken:
            return
        if session.transaction is None:
            self.transaction_count += 1
            session.transaction = self.transaction_count
            self.owners[session.transaction] = session.transactional_id
        if session.version == VERSION_1:
            codes = self.coordinator.add(
                session.producer, [("t", partition)], session.transactional_id, session.version
            )
            if any(codes.values()):
                session.is_broken = True
                return
        sequence = session.sequences[partition]
        session.sequences[partition] += 1
        session.unacknowledged.add((partition, sequence))
        self.network.append(Write(session, session.producer, partition, sequence, session.transaction))

    @precondition(lambda self: self._usable())
    @rule(data=st.data(), is_commit=st.booleans())
    def end(self, data: st.DataObject, is_commit: bool) -> None:
        """A client commits when all it wrote was acknowledged, and aborts whenever it likes."""
        self._end(data.draw(st.sampled_from(self._usable())), is_commit)

    def _end(self, session: Session, is_commit: bool) -> None:
        if session.transaction is None:
            return
        if session.is_committing is None:
            if is_commit and (session.unacknowledged or session.is_broken):
                return
            session.is_committing = is_commit
            if is_commit:
                self.committing.add(session.transaction)
        self.network.append(End(session, session.producer, session.is_committing, session.transaction))

    # The network

    @precondition(lambda self: self.network)
    @rule(data=st.data(), is_repeated=st.booleans())
    def deliver(self, data: st.DataObject, is_repeated: bool) -> None:
        number = data.draw(st.integers(0, len(self.network) - 1))
        message = self.network[number] if is_repeated else self.network.pop(number)
        self._deliver(message)

    @precondition(lambda self: self._usable())
    @rule(data=st.data(), is_commit=st.booleans())
    def run_transaction(self, data: st.DataObject, is_commit: bool) -> None:
        """All that belongs to it arrives in order, with something late in between. Some of it comes again, later."""
        session = data.draw(st.sampled_from(self._usable()))
        others, self.network = self.network, []
        sent: list[Write | End | Mark] = []
        for partition in data.draw(st.sets(st.sampled_from(PARTITIONS), min_size=1)):
            self._write(session, partition)
        sent += self._deliver_all()
        is_something_late = data.draw(st.booleans())
        if others and is_something_late:
            self._deliver(data.draw(st.sampled_from(others)))
            sent += self._deliver_all()
        self._end(session, is_commit)
        sent += self._deliver_all()
        self.network = others + data.draw(st.lists(st.sampled_from(sent[-3:]), max_size=2) if sent else st.just([]))

    def _deliver_all(self) -> list[Write | End | Mark]:
        delivered = []
        while self.network:
            delivered.append(self.network.pop(0))
            self._deliver(delivered[-1])
        return delivered

    @precondition(lambda self: self.network)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.network) - 1))
        if not isinstance(self.network[number], Mark):  # those are sent until they arrive
            del self.network[number]

    def _deliver(self, message: Write | End | Mark) -> None:
        if isinstance(message, Write):
            self._deliver_write(message)
        elif isinstance(message, End):
            self._deliver_end(message)
        else:
            self._deliver_mark(message)
        self._send_markers()

    def _deliver_write(self, write: Write) -> None:
        session, partition = write.session, self.partitions[write.partition]
        header = header_of(write.producer, write.sequence)
        is_current = write.transaction == session.transaction
        try:
            self._admit(write, header)
            if partition.append(header, write.transaction):
                assert session.generation == self.generations[session.transactional_id], "a fenced producer has written"
        except LogError:
            session.is_broken |= is_current
            return
        self.acknowledged[write.transaction].add((write.partition, write.sequence))
        if is_current:
            session.unacknowledged.discard((write.partition, write.sequence))

    def _admit(self, write: Write, header: BatchHeader) -> None:
        producers = self.partitions[write.partition].producers
        if producers.takes_part(*write.producer):
            return
        if producers.is_replaced(*write.producer):
            raise InvalidProducerEpoch
        producers.note_asked(header, 1000, epoch_rises=write.session.version == VERSION_2)
        name = "t", write.partition
        transactional_id = write.session.transactional_id
        if write.session.version == VERSION_2:
            codes = self.coordinator.add(write.producer, [name], transactional_id)
        else:
            codes = self.coordinator.verify(write.producer, [name], transactional_id)
        if codes[name]:
            raise LogError

    def _deliver_end(self, end: End) -> None:
        session = end.session
        answer = self.coordinator.end(
            end.producer, is_commit=end.is_commit, version=session.version, transactional_id=session.transactional_id
        )
        if session.transaction != end.transaction or answer.code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return  # it knows already, or asks again
        if answer.code:
            session.is_over = True
            return
        self.told[end.transaction] = end.is_commit
        if session.version == VERSION_1:
            session.is_over = bool(session.unacknowledged) or session.is_broken  # it would begin anew
        else:
            session.producer = answer.producer_id, answer.producer_epoch
            session.sequences.clear()
        session.transaction = session.is_committing = None
        session.unacknowledged.clear()
        session.is_broken = False

    def _deliver_mark(self, mark: Mark) -> None:
        sending = mark.sending
        try:
            self.partitions[mark.partition].mark(sending.markers)
        except CoordinatorFenced:
            return
        except InvalidProducerEpoch:
            pass  # it is beyond that
        sending.left.discard(mark.partition)
        if not sending.left and sending.life == self.life:
            self._complete(sending.markers)

    def _complete(self, markers: Markers) -> None:
        producer = markers.producer_id, markers.producer_epoch
        self.coordinator.driver.run(
            lambda machine, operation: machine.markers_written(operation, markers.transactional_id, producer)
        )

    def _send_markers(self) -> None:
        """Take what the coordinator wants to be sent, and put it on the network."""
        asked, self.coordinator.driver.markers = self.coordinator.driver.markers, []
        for markers in asked:
            indexes = {index for _, index in markers.partitions}
            sending = Sending(markers, self.life, indexes)
            self.network += [Mark(sending, index) for index in sorted(indexes)]
            if not indexes:
                self._complete(markers)

    # The coordinator

    @rule()
    def crash(self) -> None:
        self.life += 1
        self.coordinator.driver.crash()
        self._send_markers()

    @rule(milliseconds=st.sampled_from([1, 10_000, 60_000]))
    def wait(self, milliseconds: int) -> None:
        self.coordinator.driver.advance(milliseconds)
        self._send_markers()

    # What must hold

    def _outcomes(self) -> dict[int, set[bool]]:
        outcomes: dict[int, set[bool]] = defaultdict(set)
        for partition in self.partitions:
            for transaction, is_committed in zip(partition.transactions, partition.is_committed, strict=True):
                if transaction is not None and is_committed is not None:
                    outcomes[transaction].add(is_committed)
        return outcomes

    def _is_version_2(self, transaction: int) -> bool:
        return VERSIONS[self.owners[transaction]] == VERSION_2

    @invariant()
    def a_transaction_is_visible_whole_or_not_at_all(self) -> None:
        for transaction, outcomes in self._outcomes().items():
            if self._is_version_2(transaction):
                assert len(outcomes) == 1, f"transaction {transaction} is torn"
                told = self.told.get(transaction)
                assert told is None or outcomes == {told}, f"transaction {transaction} did not end as its client knows"
                assert True not in outcomes or transaction in self.committing, f"nobody has committed {transaction}"

    @invariant()
    def nothing_gets_into_another_transaction(self) -> None:
        for partition in self.partitions:
            for ended in partition.mixed:
                assert len([each for each in ended if self._is_version_2(each)]) <= 1

    def teardown(self) -> None:
        """Let everything arrive, and all be decided."""
        for _ in range(20):
            self._deliver_all()
            self.wait(70_000)
        assert all(each.state in AT_REST for each in self.coordinator.driver.machine.transactions.values())
        for partition in self.partitions:
            assert partition.producers.first_undecided_offset is None
        self.a_transaction_is_visible_whole_or_not_at_all()
        kept: dict[int, int] = defaultdict(int)
        for partition in self.partitions:
            for transaction, is_committed in zip(partition.transactions, partition.is_committed, strict=True):
                if transaction is not None and is_committed:
                    kept[transaction] += 1
        for transaction, is_commit in self.told.items():
            if self._is_version_2(transaction):
                assert kept[transaction] == (len(self.acknowledged[transaction]) if is_commit else 0)


TransactionModel.TestCase.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTransactionModel = TransactionModel.TestCase


def test_a_late_marker_does_not_end_the_next_transaction() -> None:
    """The rule of KIP-1228, which chance alone seldom needs."""
    model = TransactionModel()
    model.begin()
    [session] = [each for each in model.sessions if each.transactional_id == "a"]
    model._write(session, 0)
    model._deliver_all()
    model._end(session, is_commit=True)
    _, marker = model._deliver_all()
    assert isinstance(marker, Mark)
    model._write(session, 0)
    model._deliver_all()
    model._deliver(marker)
    assert model.partitions[0].is_committed == [True, None, None]
    model.teardown()
