"""A refused commit writes nothing, whomever it meets on its way: what others have committed is there after a crash."""

from __future__ import annotations

from pathlib import Path

from ottla.testing.files import SimulatedFiles
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.transactional_client import TOPIC, TransactionalClient
from tests.sim.simulated_broker import SimulatedBroker

VERSION, TXN_VERSION, FETCH_VERSION = 8, 5, 8  # the last that name topics


def start(folder: Path, files: SimulatedFiles | None = None) -> SimulatedBroker:
    return SimulatedBroker(
        folder, files=files, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1"
    )


def test_a_refused_commit_of_a_transaction_meets_that_of_another_client(tmp_path: Path) -> None:
    broker = start(tmp_path)
    broker.create(TOPIC)
    client = TransactionalClient(broker)
    client.init()
    connection = client.connection
    assert connection.ask(commit("first", 1), VERSION).topics[0].partitions[0].error_code == 0
    assert connection.ask(commit_in(client, ""), TXN_VERSION).topics[0].partitions[0].error_code == 0
    number = connection.send(commit("second", 2), VERSION)
    refused = connection.send(commit_in(client, "m" * 5000), TXN_VERSION)
    assert connection.answer(number).topics[0].partitions[0].error_code == 0
    code = connection.answer(refused).topics[0].partitions[0].error_code
    assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert connection.ask(commit("third", 3), VERSION).topics[0].partitions[0].error_code == 0
    broker.abandon()
    broker = start(tmp_path, broker.files)
    assert [committed(broker, group) for group in ("first", "second", "third")] == [1, 2, 3]
    broker.stop()


def commit(group: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def commit_in(client: TransactionalClient, metadata: str) -> TxnOffsetCommitRequest:
    partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=9, committed_metadata=metadata)
    return TxnOffsetCommitRequest(
        transactional_id=client.transactional_id,
        group_id="in a transaction",
        producer_id=client.producer[0],
        producer_epoch=client.producer[1],
        topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
    )


def committed(broker: SimulatedBroker, group: str) -> int:
    broker.advance(1)
    topic = OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])
    asked = OffsetFetchRequestGroup(group_id=group, topics=[topic])
    answer = broker.client().ask(OffsetFetchRequest(groups=[asked]), FETCH_VERSION)
    return int(answer.groups[0].topics[0].partitions[0].committed_offset)
