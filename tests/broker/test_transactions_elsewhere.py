"""Transactions whose partitions, or whose coordinator, are on other brokers: those are asked, until they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.coordinators.markers import Sending
from ottla.broker.coordinators.transactional_produce import Refusals, is_over, when_admitted
from ottla.broker.network.peer import PeerLost
from ottla.broker.network.peers import Peers
from ottla.controller.changes import ChangedStates
from ottla.controller.topic_names import TRANSACTIONS_TOPIC
from ottla.coordinator.operation import Markers
from ottla.records.build import build_batch
from ottla.records.read import read_batches
from ottla.replica.errors import AppendRefused
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.opened_broker import OpenBroker, topic

HERE, ELSEWHERE = 1, 2
PRODUCER = (7, 0)


class OtherBrokers:
    """In place of the connections to other brokers: what they are asked, and the way to answer it."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any, Callable[[Any], None]]] = []

    def to(self, node_id: int, lane: str = "") -> Any:
        others = self

        class Peer:
            def send(self, request: Any, version: int, answered: Callable[[Any], None]) -> None:
                [part] = request.writers[version](request)
                decoded, _ = type(request).readers[version](part, 0)
                others.asked.append((node_id, decoded, answered))

        return Peer()

    def close(self) -> None:
        pass


class TwoBrokers:
    """One that is real, and another that a test speaks for."""

    def __init__(self, folder: Path) -> None:
        self.open = OpenBroker(folder, transaction_state_log_num_partitions="1")
        self.broker, self.loop = self.open.broker, self.open.loop
        self.others = OtherBrokers()
        self.broker.peers.close()
        self.broker.peers = cast(Peers, self.others)
        self.open.create(topic("t", 3))
        self.is_done = False

    def lead(self, name: str, index: int, leader_id: int) -> None:
        state = self.broker.controller.cluster.states[name][index]
        after = state._replace(
            leader_id=leader_id, leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1
        )
        self.broker.controller.cluster.replay(ChangedStates({name: {index: after}}))
        partition = self.broker.topics.partition(name, index)
        if partition is not None:
            partition.apply(
                leader_id=leader_id,
                leader_epoch=after.leader_epoch,
                partition_epoch=partition.partition_epoch + 1,
                replicas=[HERE, ELSEWHERE],
                in_sync=[HERE],
                now_ms=0,
            )

    def send(self, *indexes: int) -> Sending:
        markers = Markers("x", *PRODUCER, True, 0, [("t", index) for index in indexes])

        def done() -> None:
            assert not self.is_done
            self.is_done = True

        sending = Sending(self.broker, markers, done)
        sending.start()
        return sending

    def markers(self, index: int) -> int:
        partition = self.broker.topics.partition("t", index)
        assert partition is not None
        found = partition.log.read(0, 1 << 20, partition.log.end_offset)
        return 0 if found is None else sum(1 for batch in read_batches(found.read(), with_control=True))

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> WriteTxnMarkersRequest:
        """What broker 2 was last asked; all of it has this outcome."""
        [(node_id, request, answered)] = self.others.asked
        self.others.asked.clear()
        assert node_id == ELSEWHERE
        [marker] = request.markers
        results = [
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ]
        answered(
            WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=marker.producer_id, topics=results)])
        )
        return cast(WriteTxnMarkersRequest, request)

    def run_until_asked(self) -> None:
        self.loop.run_until(lambda: bool(self.others.asked))


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoBrokers]:
    two = TwoBrokers(tmp_path)
    yield two
    two.open.stop()


def test_markers_go_to_the_leaders_of_their_partitions(two: TwoBrokers) -> None:
    two.lead("t", 1, ELSEWHERE)
    two.lead("t", 2, ELSEWHERE)
    two.send(0, 1, 2)
    assert [two.markers(index) for index in (0, 1, 2)] == [1, 0, 0]
    assert not two.is_done
    [marker] = two.answer().markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (*PRODUCER, True)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("t", [1, 2])]
    assert two.is_done


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    ],
)
def test_what_is_refused_for_a_while_is_sent_again(two: TwoBrokers, code: ErrorCode) -> None:
    two.lead("t", 1, ELSEWHERE)
    two.send(1)
    for _ in range(3):
        two.answer(code)
        assert not two.is_done
        two.run_until_asked()
    two.answer()
    assert two.is_done


def test_a_lost_connection_is_no_answer(two: TwoBrokers) -> None:
    two.lead("t", 1, ELSEWHERE)
    two.send(1)
    _, _, answered = two.others.asked.pop()
    answered(PeerLost("gone"))
    two.run_until_asked()
    two.answer()
    assert two.is_done


def test_markers_follow_a_leader_that_moves(two: TwoBrokers) -> None:
    two.lead("t", 1, ELSEWHERE)
    two.send(1)
    two.lead("t", 1, HERE)
    two.answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    two.loop.run_until(lambda: two.is_done)
    assert two.markers(1) == 1


def test_markers_wait_for_somebody_to_lead(two: TwoBrokers) -> None:
    two.lead("t", 1, -1)
    two.send(1)
    assert not two.others.asked
    two.lead("t", 1, ELSEWHERE)
    two.run_until_asked()
    two.answer()
    assert two.is_done


def test_a_coordinator_that_was_replaced_sends_no_more(two: TwoBrokers) -> None:
    two.lead("t", 1, ELSEWHERE)
    two.send(1)
    two.answer(ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert not two.is_done
    until = two.loop.now() + 0.3
    two.loop.call_at(until, lambda: None)
    two.loop.run_until(lambda: two.loop.now() >= until)
    assert not two.others.asked


def test_an_answer_that_comes_behind_the_end_of_the_coordinator_changes_nothing(two: TwoBrokers) -> None:
    two.lead("t", 1, ELSEWHERE)
    sending = two.send(1)
    sending.stop()
    two.answer()
    assert not two.is_done


def test_a_marker_that_too_few_replicas_have_is_not_written_twice(two: TwoBrokers) -> None:
    partition = two.broker.topics.partition("t", 0)
    assert partition is not None
    partition.log.reconfigure(two.broker.settings.topic_defaults.topic({"min.insync.replicas": "2"}))

    def lead(in_sync: list[int]) -> None:
        epoch = partition.partition_epoch + 1
        partition.apply(
            leader_id=HERE, leader_epoch=9, partition_epoch=epoch, replicas=[HERE, ELSEWHERE], in_sync=in_sync, now_ms=0
        )

    lead([HERE, ELSEWHERE])
    two.send(0)
    lead([HERE])
    two.loop.call_later(0.25, lambda: lead([HERE, ELSEWHERE]))
    two.loop.run_until(lambda: len(partition.in_sync) == 2)
    assert not two.is_done
    partition.follower_at(ELSEWHERE, 9, partition.log.end_offset, 0)
    two.loop.run_until(lambda: two.is_done)
    assert two.markers(0) == 1


# Admission


def admit(two: TwoBrokers, adds: bool) -> list[dict[tuple[str, int], ErrorCode]]:
    answers: list[dict[tuple[str, int], ErrorCode]] = []
    two.broker.transactions.admit("x", PRODUCER, [("t", 0), ("t", 2)], adds=adds, done=answers.append)
    return answers


@pytest.fixture
def elsewhere(two: TwoBrokers) -> TwoBrokers:
    """The transactions are coordinated by the other one."""
    two.open.create(topic(TRANSACTIONS_TOPIC))
    two.lead(TRANSACTIONS_TOPIC, 0, ELSEWHERE)
    return two


@pytest.mark.parametrize("adds", [True, False])
def test_the_coordinator_of_a_transaction_is_asked_where_it_is(elsewhere: TwoBrokers, adds: bool) -> None:
    answers = admit(elsewhere, adds)
    [(node_id, request, answered)] = elsewhere.others.asked
    assert node_id == ELSEWHERE
    assert isinstance(request, AddPartitionsToTxnRequest)
    [transaction] = request.transactions
    assert (transaction.transactional_id, transaction.producer_id, transaction.verify_only) == ("x", 7, not adds)
    assert [(each.name, each.partitions) for each in transaction.topics] == [("t", [0, 2])]
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=0),
        AddPartitionsToTxnPartitionResult(partition_index=2, partition_error_code=ErrorCode.INVALID_TXN_STATE),
    ]
    answered(
        AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id="x",
                    topic_results=[AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)],
                )
            ]
        )
    )
    assert answers == [{("t", 0): ErrorCode.NONE, ("t", 2): ErrorCode.INVALID_TXN_STATE}]


def test_a_coordinator_that_gives_no_answer_is_not_there(elsewhere: TwoBrokers) -> None:
    answers = admit(elsewhere, adds=True)
    elsewhere.others.asked.pop()[2](PeerLost("gone"))
    assert answers == [dict.fromkeys([("t", 0), ("t", 2)], ErrorCode.COORDINATOR_NOT_AVAILABLE)]


def test_a_write_to_a_follower_is_nothing_that_a_marker_has_ended(two: TwoBrokers) -> None:
    """Who is told that it is over tries again in the same place for ever, and never looks for the leader."""
    partition = two.broker.topics.partition("t", 0)
    assert partition is not None
    batch = build_batch([b"a"], timestamp=0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    assert is_over(partition, batch)  # nobody was asked about it
    two.lead("t", 0, ELSEWHERE)
    assert not is_over(partition, batch)
    with pytest.raises(AppendRefused) as refused:
        partition.writer.produce(memoryview(batch), 12, 0, -1, True)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("moved", "leader_before"), [(2, ELSEWHERE), (0, HERE)])
def test_who_begins_to_lead_while_the_coordinator_is_asked_is_sent_the_batch_again(
    elsewhere: TwoBrokers, moved: int, leader_before: int
) -> None:
    """Nobody was asked for a partition that was led elsewhere, and that is not the end of a transaction."""
    two = elsewhere
    two.lead("t", moved, leader_before)
    batch = build_batch([b"a"], timestamp=0, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    request = ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch),
                                                       PartitionProduceData(index=2, records=batch)])
        ],
    )  # fmt: skip
    done: list[Refusals] = []

    def produce(refusals: Refusals) -> None:
        done.append(refusals)

    connection = SimpleNamespace(hold=lambda: None, release=lambda: None)
    context = cast(Any, SimpleNamespace(version=12, connection=connection))
    when_admitted(
        two.broker, request, context, lambda name, data: two.broker.topics.partition(name.name, data.index), produce
    )
    [(_, asked, answered)] = two.others.asked
    [names] = asked.transactions[0].topics
    two.lead("t", moved, HERE)
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=one, partition_error_code=0) for one in names.partitions
    ]
    topics = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)]
    result = AddPartitionsToTxnResult(transactional_id="x", topic_results=topics)
    answered(AddPartitionsToTxnResponse(results_by_transaction=[result]))
    [refusals] = done
    told = {place: (refusal.code, refusal.message) for place, refusal in refusals.items()}
    assert told == {("t", moved): (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)}
