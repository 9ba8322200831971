"""Kafka's own tool reads what the coordinator of transactions writes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ottla.coordinator.transactions.machine import TransactionSettings
from ottla.coordinator.transactions.transaction import LAST_EPOCH, VERSION_1
from ottla.records.build import build_batch
from ottla.wire.messages.transaction_records import TransactionLogKey
from tests.apache_kafka.harness import run_tool
from tests.coordinator.transactions import ID, T0, Transactions

DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(r" key: (\{.*\}) payload: (<DELETE>|\{.*\})$")


def life_of_an_id() -> Transactions:
    """Transactions of both versions, the last epoch of a producer id, and the end of the id."""
    transactions = Transactions(TransactionSettings(removal_interval_ms=1000, id_expiration_ms=1000))
    producer = transactions.ongoing(VERSION_1)
    transactions.end(producer, is_commit=True, version=VERSION_1)
    transactions.write_markers()
    last = transactions[ID]._replace(producer_epoch=LAST_EPOCH)
    key = TransactionLogKey(transactional_id=ID)
    transactions.driver.run(lambda machine, operation: operation.write(key, last.to_value(), 1))
    transactions.add(last.producer, [T0])
    transactions.end(last.producer, is_commit=False)
    transactions.write_markers()
    transactions.driver.advance(5000)
    return transactions


@pytest.mark.usefixtures("kafka_classpath")
def test_every_record_is_read_as_it_was_meant(tmp_path: Path) -> None:
    transactions = life_of_an_id()
    records = transactions.driver.log
    segment = tmp_path / "00000000000000000000.log"
    batch = build_batch([record.value for record in records], keys=[record.key for record in records], timestamp=1)
    segment.write_bytes(batch)
    dumped = run_tool(DUMP, "--files", str(segment), "--transaction-log-decoder").splitlines()
    read = [found for line in dumped if (found := RECORD.search(line))]
    assert len(read) == len(records)
    assert {json.loads(found[1])["data"]["transactionalId"] for found in read} == {ID}
    *values, deletion = [found[2] for found in read]
    assert deletion == "<DELETE>"
    steps = [json.loads(value)["data"] for value in values]
    shown = [(step["transactionStatus"], step["producerId"], step["producerEpoch"]) for step in steps]
    assert shown == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
        (4, 0, 0),
        (4, 0, LAST_EPOCH),
        (1, 0, LAST_EPOCH),
        (3, 0, LAST_EPOCH + 1),
        (5, 1, 0),
    ]
    assert [step.get("nextProducerId", -1) for step in steps] == [-1] * 6 + [1, -1]
    assert steps[-1]["previousProducerId"] == 0
    assert steps[1]["transactionPartitions"] == [{"topic": "t", "partitionIds": [0]}]
