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


@pytest.mark.parametrize("batch_bytes", [[1_000] * 4, [1_000] * 8, [1_000, 90_000], [30_000, 1_000, 40_000]])
def test_those_who_share_a_quota_take_turns(tmp_path: Path, batch_bytes: list[int]) -> None:
    broker = SimulatedBroker(tmp_path)
    broker.create("t", len(batch_bytes))
    writer = broker.client("writer")
    for partition, size in enumerate(batch_bytes):
        for _ in range(QUOTA * SECONDS // size // len(batch_bytes) * 2):
            writer.ask(broker.produce_request("t", [bytes(size)], partition=partition), PRODUCE_VERSION)
    broker.broker.quotas.set_limits(client_entity("reader"), {CONSUMER_BYTE_RATE: QUOTA})
    readers = [broker.client("reader") for _ in batch_bytes]
    start, ready = broker.system.now(), [0.0] * len(readers)
    offsets, longest, last = [0] * len(readers), [0.0] * len(readers), [0.0] * len(readers)
    while (passed := broker.system.now() - start) < SECONDS:
        index = ready.index(min(ready))  # of several the first is always the quickest
        broker.advance(max(ready[index] - passed, 0))
        answer = readers[index].ask(fetch_request("t", offsets[index], partition=index), FETCH_VERSION)
        records = answer.responses[0].partitions[0].records if answer.responses else b""
        count = len(read_records(bytes(records or b"")))
        now = broker.system.now() - start
        offsets[index] += count
        longest[index] = max(longest[index], now - last[index])
        if count:
            last[index] = now
        ready[index] = now + answer.throttle_time_ms / 1000 + 0.01
    assert max(longest) < 4 * 11  # a turn is of two windows at most, and eleven are measured
    broker.stop()
