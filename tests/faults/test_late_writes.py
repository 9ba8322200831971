"""A transaction that is ended while a large write to it is still looked at does not get that write any more."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from ottla.records.build import build_batch
from ottla.records.compression import GZIP
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import requests
from tests.conformance.connection import Connection
from tests.conformance.script import Topic
from tests.faults.broker_process import BrokerProcess

ID, TOPIC = "late", Topic("late", ZERO_UUID)
WAIT_S = 20.0
OF_VERSION_1 = 11  # of Produce: a transaction keeps its epoch from one to the next
RETRIED = (14, 15, 16, 51)
LARGE = [bytes(1000)] * 40_000  # seen to be right in many slices


def receive(connection: Connection, request: Any, version: int) -> Any:
    frame = connection.receive(WAIT_S)
    assert isinstance(frame, bytes)
    return decode_response(frame, request.api, version)[1]


def ask(connection: Connection, request: Any, version: int) -> Any:
    connection.send(encode_request(1, None, request, version))
    return receive(connection, request, version)


def begin(connection: Connection) -> tuple[int, int]:
    """A producer with an open transaction on both partitions."""
    code = RETRIED[0]
    while code in RETRIED:
        answer = ask(connection, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 4)
        code = answer.error_code
    producer = answer.producer_id, answer.producer_epoch
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC.name, partitions=[0, 1])],
    )
    added = ask(connection, request, 3).results_by_topic_v3_and_below[0].results_by_partition
    assert [partition.partition_error_code for partition in added] == [0, 0]
    return producer


def ends(connection: Connection, isolation: int) -> list[int]:
    answer = ask(connection, requests.list_offsets(TOPIC, -1, partitions=(0, 1), isolation=isolation), 7)
    return [partition.offset for partition in answer.topics[0].partitions]


def test_a_write_that_is_overtaken_by_the_end_of_its_transaction_is_refused(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        with (
            contextlib.closing(Connection(broker.address)) as writer,
            contextlib.closing(Connection(broker.address)) as other,
        ):
            ask(other, requests.create_topics(requests.creatable(TOPIC.name, partitions=2)), 7)
            producer_id, epoch = begin(other)

            def batch(values: list[bytes]) -> bytearray:
                return build_batch(
                    values,
                    timestamp=1000,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=0,
                    is_transactional=True,
                    codec=GZIP,
                )

            rows = [(TOPIC, 0, batch(LARGE)), (TOPIC, 1, batch([b"small"]))]
            produce = requests.produce_many(rows, acks=-1, transactional_id=ID)
            writer.send(encode_request(1, None, produce, OF_VERSION_1))
            ask(other, requests.metadata(TOPIC.name), 12)  # by now it is being looked at
            end = EndTxnRequest(transactional_id=ID, producer_id=producer_id, producer_epoch=epoch, committed=False)
            assert ask(other, end, 3).error_code == 0
            written = receive(writer, produce, OF_VERSION_1)
            codes = [partition.error_code for topic in written.responses for partition in topic.partition_responses]

            assert ends(other, isolation=1) == ends(other, isolation=0)  # all is decided
            assert set(codes) <= {0, 48}
        assert broker.errors() == ""
