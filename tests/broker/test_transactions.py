"""Transactions from the wire to the log and back, on a simulated network and clock, in both durabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.broker.loop.slices import run_to_end
from ottla.coordinator.transactions.machine import TransactionMachine
from ottla.log.errors import StorageFailed
from ottla.log.log import Log
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.messages.delete_topics import DeleteTopicState
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.wire.uuids import ZERO_UUID
from tests.broker.transactional_client import (
    READ_COMMITTED,
    TOPIC,
    VERSION_1,
    VERSION_2,
    TransactionalClient,
    all_read,
    read,
)
from tests.sim.simulated_broker import SimulatedBroker

Start = Callable[..., SimulatedBroker]
READ_UNCOMMITTED = 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[SimulatedBroker] = []

    def start(seed: int = 0, **settings: Any) -> SimulatedBroker:
        folder = tmp_path / str(len(started))
        folder.mkdir()
        broker = SimulatedBroker(folder, seed, transaction_state_log_num_partitions="2", **settings)
        broker.create(TOPIC, 2)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture(params=[False, True], ids=["page cache", "fsync"])
def broker(start: Start, request: pytest.FixtureRequest) -> SimulatedBroker:
    return start(syncs=request.param)


def append_in(client: TransactionalClient, index: int, sequence: int, *values: bytes) -> None:
    if client.version == VERSION_1:
        assert client.add(index) == 0
    assert client.write(index, sequence, *values) == 0


# The whole way


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_a_transaction_is_seen_whole_or_not_at_all(broker: SimulatedBroker, version: int) -> None:
    client = TransactionalClient(broker, version=version)
    client.init()
    append_in(client, 0, 0, b"a")
    append_in(client, 1, 0, b"b")
    assert all_read(broker, [0, 1]) == [[], []]
    assert all_read(broker, [0, 1], READ_UNCOMMITTED) == [[b"a"], [b"b"]]
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert client.state() == "CompleteCommit"
    assert all_read(broker, [0, 1]) == [[b"a"], [b"b"]]
    for sequence, index in ((1, 0), (1, 1)):
        append_in(client, index, sequence if version == VERSION_1 else 0, b"x")
    assert client.end(is_commit=False) == 0
    broker.advance(1)
    assert all_read(broker, [0, 1]) == [[b"a"], [b"b"]]
    assert all_read(broker, [0, 1], READ_UNCOMMITTED) == [[b"a", b"x"], [b"b", b"x"]]


def test_one_transaction_follows_the_other_at_once(broker: SimulatedBroker) -> None:
    """A write that comes while the markers of the transaction before are on their way waits for them."""
    client = TransactionalClient(broker)
    client.init()
    for number in range(10):
        assert client.write(number % 2, 0, b"%d" % number) == 0
        assert client.end(is_commit=number % 3 != 0) == 0
    broker.advance(1)
    assert all_read(broker, [0, 1]) == [[b"2", b"4", b"8"], [b"1", b"5", b"7"]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_what_is_sent_behind_a_write_that_waits_does_not_overtake_it(start: Start, seed: int, version: int) -> None:
    broker = start(seed, syncs=True)
    client = TransactionalClient(broker, version=version)
    client.init()
    if version == VERSION_1:
        assert client.add(0, 1) == 0
    numbers = [client.send_write(sequence % 2, sequence // 2, b"%d" % sequence) for sequence in range(10)]
    assert [client.written(number) for number in numbers] == [(0, sequence // 2) for sequence in range(10)]
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert read(broker, 0) == [b"0", b"2", b"4", b"6", b"8"]


def test_others_do_not_wait_with_it(start: Start) -> None:
    broker = start(syncs=True)
    client, other = TransactionalClient(broker), broker.client()
    client.init()
    number = client.send_write(0, 0, b"waits")
    assert broker.produce(other, TOPIC, b"does not").error_code == 0
    assert client.written(number)[0] == 0


def test_a_client_that_goes_while_its_write_waits(start: Start) -> None:
    broker = start(syncs=True)
    client = TransactionalClient(broker)
    client.init()
    client.send_write(0, 0, b"a")
    client.connection.close()
    broker.advance(1)
    successor = TransactionalClient(broker)
    successor.init()
    assert successor.write(0, 0, b"b") == 0
    assert successor.end(is_commit=True) == 0
    broker.advance(1)
    assert read(broker, 0) == [b"b"]


# What comes late


def test_a_late_write_of_version_2_never_lands_in_the_next_transaction(broker: SimulatedBroker) -> None:
    client = TransactionalClient(broker)
    old = client.init()
    assert client.write(0, 0, b"in time") == 0
    assert client.end(is_commit=False) == 0
    assert client.write(0, 0, b"next") == 0
    for index, sequence in ((0, 0), (0, 1), (1, 0)):  # a partition of the transaction, and one that it never saw
        assert client.write(index, sequence, b"late", producer=old) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert client.end(is_commit=True, producer=old) == ErrorCode.PRODUCER_FENCED
    assert client.end(is_commit=False, producer=old) == ErrorCode.PRODUCER_FENCED
    assert client.state() == "Ongoing"
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert all_read(broker, [0, 1]) == [[b"next"], []]


def test_a_late_write_of_version_1_is_refused_between_transactions_and_taken_within_the_next(
    broker: SimulatedBroker,
) -> None:
    """What is left of the flaw that version 2 is for: the epoch does not tell one transaction from the next."""
    client = TransactionalClient(broker, version=VERSION_1)
    client.init()
    assert client.add(0) == 0
    assert client.end(is_commit=False) == 0  # the client gave up on a write that is still on its way
    broker.advance(1)
    assert client.write(0, 0, b"late") == ErrorCode.TRANSACTION_ABORTABLE
    assert client.add(0) == 0
    assert client.write(0, 0, b"late") == 0
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert read(broker, 0) == [b"late"]


def test_without_verification_a_late_write_of_version_1_hangs(start: Start) -> None:
    broker = start(transaction_partition_verification_enable="false")
    client = TransactionalClient(broker, version=VERSION_1)
    client.init()
    assert client.write(0, 0, b"late") == 0
    broker.produce(broker.client(), TOPIC, b"behind it")
    broker.advance(120)
    assert read(broker, 0) == []


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_who_uses_the_numbers_of_another_is_refused_and_leaves_nothing_behind(
    broker: SimulatedBroker, version: int
) -> None:
    client = TransactionalClient(broker, version=version)
    client.init()
    for sequence in (0, 1) if version == VERSION_1 else (0, 0):
        if version == VERSION_1:
            while client.add(0) == ErrorCode.CONCURRENT_TRANSACTIONS:  # until the end of the one before is on the disk
                broker.advance(1)
        assert client.write(0, sequence, b"a") == 0
        assert client.end(is_commit=True) == 0
        stranger = TransactionalClient(broker, "nobody", version)
        for producer in (client.producer, (9999, 0), (9998, 3)):
            assert stranger.write(0, 0, b"b", producer=producer) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    broker.advance(1)
    assert read(broker, 0) == [b"a", b"a"]
    assert not broker.broker.topics.by_name[TOPIC].partitions[0].log.producers._asked


def test_one_who_begins_anew_fences_the_one_before(broker: SimulatedBroker) -> None:
    first, second = TransactionalClient(broker), TransactionalClient(broker)
    first.init()
    assert first.write(0, 0, b"a") == 0
    second.init()
    assert second.producer == (first.producer[0], 2)
    assert first.write(0, 1, b"b") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.write(1, 0, b"b") == ErrorCode.INVALID_PRODUCER_EPOCH
    assert first.end(is_commit=True) == ErrorCode.PRODUCER_FENCED
    assert second.write(0, 0, b"c") == 0
    assert second.end(is_commit=True) == 0
    broker.advance(1)
    assert read(broker, 0) == [b"c"]


@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
def test_a_transaction_that_takes_too_long_is_aborted(broker: SimulatedBroker, version: int) -> None:
    client = TransactionalClient(broker, version=version)
    client.init(timeout_ms=5000)
    append_in(client, 0, 0, b"a")
    broker.produce(broker.client(), TOPIC, b"plain")
    assert read(broker, 0) == []
    broker.advance(25)
    assert client.state() == "CompleteAbort"
    assert read(broker, 0) == [b"plain"]
    assert client.write(0, 1, b"b") == ErrorCode.INVALID_PRODUCER_EPOCH


# Reading beside open transactions


def test_offsets_beside_an_open_transaction(broker: SimulatedBroker) -> None:
    client = TransactionalClient(broker)
    client.init()
    broker.produce(broker.client(), TOPIC, b"plain")
    assert client.write(0, 0, b"a") == 0
    broker.produce(broker.client(), TOPIC, b"plain")
    assert [_end_offset(broker, isolation) for isolation in (READ_UNCOMMITTED, READ_COMMITTED)] == [3, 1]
    deletion = DeleteRecordsTopic(
        name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)]
    )  # a part of what is open
    answer = broker.client().ask(DeleteRecordsRequest(topics=[deletion], timeout_ms=1000))
    assert answer.topics[0].partitions[0].low_watermark == 2
    assert _end_offset(broker, READ_COMMITTED) == 2
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert _end_offset(broker, READ_COMMITTED) == 4


def _end_offset(broker: SimulatedBroker, isolation: int) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
    )
    return int(broker.client().ask(request).topics[0].partitions[0].offset)


# What other brokers ask


def test_one_broker_asks_about_several_transactions(broker: SimulatedBroker) -> None:
    one, two = TransactionalClient(broker, "one"), TransactionalClient(broker, "two")
    one.init()
    two.init()
    topics = [AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])]
    asked = [
        AddPartitionsToTxnTransaction(
            transactional_id=client.transactional_id,
            producer_id=client.producer[0],
            producer_epoch=client.producer[1],
            verify_only=client is two,
            topics=topics,
        )
        for client in (one, two)
    ]
    answer = broker.client().ask(AddPartitionsToTxnRequest(transactions=asked))
    codes = {
        result.transactional_id: result.topic_results[0].results_by_partition[0].partition_error_code
        for result in answer.results_by_transaction
    }
    assert codes == {"one": 0, "two": ErrorCode.TRANSACTION_ABORTABLE}
    assert broker.client().ask(AddPartitionsToTxnRequest(transactions=[])).results_by_transaction == []


def test_markers_from_elsewhere_end_what_is_open(broker: SimulatedBroker) -> None:
    client = TransactionalClient(broker)
    producer_id, epoch = client.init()
    assert client.write(0, 0, b"a") == 0
    broker.produce(broker.client(), TOPIC, b"behind")
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[0, 7])],
        coordinator_epoch=0,
    )
    answer = broker.client().ask(WriteTxnMarkersRequest(markers=[marker]))
    codes = [result.error_code for result in answer.markers[0].topics[0].partitions]
    assert codes == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert read(broker, 0) == [b"behind"]


# Trouble


def failing(monkeypatch: pytest.MonkeyPatch, is_failing: Callable[[str, int], bool]) -> None:
    """Let appends that brokers make themselves find the disk full, in some partitions."""
    append = Log.append

    def maybe(self: Log, *arguments: Any, **options: Any) -> Any:
        topic, _, index = Path(self.folder).name.rpartition("-")
        if is_failing(topic, int(index)):
            raise StorageFailed("no space left on device")
        return append(self, *arguments, **options)

    monkeypatch.setattr(Log, "append", maybe)


def test_markers_wait_for_room_on_the_disk(broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    client = TransactionalClient(broker)
    client.init()
    append_in(client, 0, 0, b"a")
    append_in(client, 1, 0, b"b")
    is_full = True
    failing(monkeypatch, lambda topic, index: is_full and (topic, index) == (TOPIC, 1))
    assert client.end(is_commit=True) == 0
    broker.advance(30)
    assert client.state() == "PrepareCommit"
    next_write = client.send_write(0, 0, b"c")
    assert client.written(next_write)[0] == ErrorCode.CONCURRENT_TRANSACTIONS
    is_full = False
    broker.advance(1)
    assert client.state() == "CompleteCommit"
    assert all_read(broker, [0, 1]) == [[b"a"], [b"b"]]


@pytest.mark.parametrize(
    ("settings", "asked", "waited_ms"),
    [
        ({}, 6, 100),
        ({"add_partitions_to_txn_retry_backoff_ms": "30"}, 5, 120),
        ({"add_partitions_to_txn_retry_backoff_max_ms": "0"}, 1, 0),
        ({"request_timeout_ms": "50"}, 4, 60),
    ],
)
def test_a_write_asks_now_and_then_whether_the_transaction_before_is_over(
    start: Start, monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], asked: int, waited_ms: int
) -> None:
    broker = start(**settings)
    client = TransactionalClient(broker)
    client.init()
    append_in(client, 0, 0, b"a")
    failing(monkeypatch, lambda topic, _index: topic == TOPIC)
    assert client.end(is_commit=True) == 0
    add_partitions = TransactionMachine.add_partitions
    asked_at = []

    def noted(self: TransactionMachine, *arguments: Any) -> None:
        asked_at.append(broker.system.now())
        add_partitions(self, *arguments)

    monkeypatch.setattr(TransactionMachine, "add_partitions", noted)
    assert client.write(0, 0, b"b") == ErrorCode.CONCURRENT_TRANSACTIONS
    assert len(asked_at) == asked
    assert asked_at[-1] - asked_at[0] == pytest.approx(waited_ms / 1000)


def test_a_coordinator_that_cannot_write_says_so_and_goes_on_later(
    broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = TransactionalClient(broker)
    client.init()
    append_in(client, 0, 0, b"a")
    is_full = True
    failing(monkeypatch, lambda topic, _index: is_full and topic == "__transaction_state")
    answer = client.connection.ask(client.end_request(is_commit=True), 5)
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert client.write(1, 0, b"b") in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
    broker.advance(30)
    is_full = False
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert all_read(broker, [0, 1]) == [[b"a"], []]


def test_a_full_disk_does_not_fill_with_markers(broker: SimulatedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a transaction that cannot be noted is tried again, but not without a pause."""
    client = TransactionalClient(broker)
    client.init()
    append_in(client, 0, 0, b"a")
    writes = 0

    def is_failing(topic: str, _index: int) -> bool:
        nonlocal writes
        if topic != "__transaction_state":
            return False
        writes += 1
        return writes > 1  # all but what decides

    failing(monkeypatch, is_failing)
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert _end_offset(broker, READ_UNCOMMITTED) < 20
    monkeypatch.undo()
    broker.advance(1)
    assert client.state() == "CompleteCommit"
    assert read(broker, 0) == [b"a"]


def test_markers_that_a_coordinator_left_behind_do_not_end_the_next_transaction(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With version 1 the next one has the same epoch: only the coordinator can tell them apart."""
    broker = start()
    client = TransactionalClient(broker, version=VERSION_1)
    client.init()
    append_in(client, 0, 0, b"a")
    full: set[str] = {TOPIC}
    failing(monkeypatch, lambda topic, _index: topic in full)
    monkeypatch.setattr("ottla.broker.coordinators.markers.RETRY_SECONDS", 10)
    assert client.end(is_commit=True) == 0
    full.add("__transaction_state")
    for number in range(8):  # in both of its partitions somebody fails, and so both coordinators start over
        other = TransactionalClient(broker, f"other {number}")
        request = InitProducerIdRequest(transactional_id=other.transactional_id, transaction_timeout_ms=1000)
        assert other.connection.ask(request, 5).error_code
    full.clear()
    broker.advance(1)
    assert client.state() == "CompleteCommit"
    append_in(client, 0, 1, b"b")
    broker.advance(20)
    assert read(broker, 0) == [b"a"]  # for the next one is still open
    assert client.end(is_commit=False) == 0
    broker.advance(1)
    assert read(broker, 0) == [b"a"]


def test_a_deleted_topic_holds_nobody_up(broker: SimulatedBroker) -> None:
    client = TransactionalClient(broker)
    client.init()
    append_in(client, 0, 0, b"a")
    run_to_end(broker.loop, broker.broker.topic_requests.delete([DeleteTopicState(name=TOPIC, topic_id=ZERO_UUID)]))
    assert client.end(is_commit=True) == 0
    broker.advance(1)
    assert client.state() == "CompleteCommit"


# Producer ids and producers


def test_producer_ids_are_never_given_twice(tmp_path: Path) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    ids: list[int] = []
    for _ in range(2):
        broker = SimulatedBroker(tmp_path)
        ids += [broker.client().ask(request).producer_id for _ in range(3)]
        broker.stop()
    assert ids == [0, 1, 2, 1000, 1001, 1002]


def test_a_producer_that_writes_no_more_is_forgotten(start: Start) -> None:
    broker = start(producer_id_expiration_ms="1000000")
    client = TransactionalClient(broker)
    client.init()
    assert client.write(0, 0, b"a") == 0
    partition = broker.broker.topics.partition(TOPIC, 0)
    assert partition is not None
    broker.advance(650)
    assert len(partition.log.producers) == 1  # fenced by the abort of its transaction, and remembered for that
    broker.advance(1200)
    assert len(partition.log.producers) == 0


def test_an_id_that_nobody_uses_is_forgotten_for_good(start: Start) -> None:
    broker = start(
        connections_max_idle_ms="10000000",
        transactional_id_expiration_ms="1000000",
        transaction_remove_expired_transaction_cleanup_interval_ms="10000",
    )
    client, other = TransactionalClient(broker), TransactionalClient(broker, "other")
    first = client.init()
    assert client.end(is_commit=False) == 0
    broker.advance(600)
    other.init()
    broker.advance(450)
    assert (client.state(), other.state()) == ("", "Empty")
    assert client.init() > first
    broker.broker.transactions.stop()
    broker.broker.transactions.start()
    broker.advance(600)
    assert (client.state(), other.state()) == ("Empty", "")


def test_the_topic_of_transactions_is_made_as_kafka_makes_it(start: Start) -> None:
    broker = start()
    TransactionalClient(broker).init()
    overrides = broker.broker.topics.by_name["__transaction_state"].overrides
    assert overrides == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
