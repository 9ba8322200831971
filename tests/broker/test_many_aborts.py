"""One who reads what is committed gets little at a time where very much was aborted, and does not wait for more."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.log import segments
from ottla.records.build import build_batch
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from tests.sim.simulated_broker import FETCH_VERSION, SimulatedBroker, fetch_request

ABORTS = 6
LAST_VERSION_THAT_IS_VERIFIED = 11


def test_a_fetch_is_answered_with_what_it_may_get_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MOST_ABORTS", 1)
    broker = SimulatedBroker(tmp_path, transaction_partition_verification_enable="false")
    broker.create("t")
    client = broker.client()
    for number in range(ABORTS):
        batch = build_batch(
            [b"v"],
            timestamp=broker.system.clock_ms(),
            producer_id=1,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )
        data = [TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])]
        request = ProduceRequest(transactional_id="x", acks=-1, timeout_ms=1000, topic_data=data)
        [answer] = client.ask(request, LAST_VERSION_THAT_IS_VERIFIED).responses[0].partition_responses
        assert answer.error_code == 0
        marker = WritableTxnMarker(
            producer_id=1,
            producer_epoch=0,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            coordinator_epoch=0,
        )
        client.ask(WriteTxnMarkersRequest(markers=[marker]))
    offset, told, began_at = 0, 0, broker.system.now()
    while offset < 2 * ABORTS - 4:
        fetch = fetch_request("t", offset, wait_ms=30_000, min_bytes=1 << 20)
        fetch.isolation_level = 1
        [fetched] = client.ask(fetch, FETCH_VERSION).responses[0].partitions
        assert 0 < len(fetched.aborted_transactions) <= 2
        told += len(fetched.aborted_transactions)
        offset += 4
    assert told >= ABORTS - 2
    assert broker.system.now() - began_at < 1
    broker.stop()
