"""A backlog comes as fast as the quota of its consumer allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.quotas.quotas import CONSUMER_BYTE_RATE, client_entity
from ottla.records.read import read_records
from tests.sim.simulated_broker import FETCH_VERSION, PRODUCE_VERSION, SimulatedBroker, fetch_request

QUOTA = 50_000  # bytes a second
SECONDS = 120


@pytest.mark.parametrize(
    ("batch_bytes", "least_share"),
    [(1_000, 0.85), (10_000, 0.85), (90_000, 0.8)],  # of larger ones fewer fit into the windows
)
def test_a_backlog_comes_at_the_rate_of_the_quota(tmp_path: Path, batch_bytes: int, least_share: float) -> None:
    broker = SimulatedBroker(tmp_path)
    broker.create("t")
    writer = broker.client("writer")
    for _ in range(QUOTA * SECONDS * 2 // batch_bytes):
        writer.ask(broker.produce_request("t", [bytes(batch_bytes)]), PRODUCE_VERSION)
    broker.broker.quotas.set_limits(client_entity("reader"), {CONSUMER_BYTE_RATE: QUOTA})
    reader = broker.client("reader")
    start, offset, given_bytes = broker.system.now(), 0, 0
    while (passed := broker.system.now() - start) < SECONDS:
        answer = reader.ask(fetch_request("t", offset), FETCH_VERSION)
        records = answer.responses[0].partitions[0].records if answer.responses else b""
        values = [record.value or b"" for record in read_records(bytes(records or b""))]
        offset += len(values)
        given_bytes += sum(map(len, values))
        broker.advance(answer.throttle_time_ms / 1000)
        if not values and not answer.throttle_time_ms:
            broker.advance(0.1)
        assert given_bytes <= QUOTA * (passed + 11) * 1.1 + batch_bytes
    assert given_bytes >= least_share * QUOTA * SECONDS
    broker.stop()
