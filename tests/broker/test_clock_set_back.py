"""The machine's clock is set by a day: what takes its time goes on, nobody waits for the clock, and nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.broker.loop import aging
from ottla.broker.quotas.quotas import CONSUMER_BYTE_RATE, CONTROLLER_MUTATION_RATE, PRODUCER_BYTE_RATE
from ottla.records.build import build_batch
from ottla.testing.files import SimulatedFiles
from tests.broker.transactional_client import TransactionalClient
from tests.cluster.one_loop import Brokers
from tests.conformance import group_requests, requests
from tests.conformance.script import Topic
from tests.sim.simulated_broker import FETCH_VERSION, PRODUCE_VERSION, SimulatedBroker, fetch_request

DAY_MS = 86_400_000
MINUTE_S = 60
VALUE = bytes(5000)


@pytest.fixture
def broker(tmp_path: Path) -> SimulatedBroker:
    return SimulatedBroker(
        tmp_path, log_segment_bytes="1048576", log_retention_bytes="1048576", log_retention_check_interval_ms="60000"
    )


def test_who_stays_within_its_quota_is_not_throttled(broker: SimulatedBroker) -> None:
    broker.create("t")
    limits = {PRODUCER_BYTE_RATE: 10_000.0, CONSUMER_BYTE_RATE: 10_000.0, CONTROLLER_MUTATION_RATE: 1.0}
    broker.broker.quotas.set_limits((("user", "ANONYMOUS"),), limits)
    client = broker.client()
    throttled_ms = []
    for number in range(60):
        answer = client.ask(broker.produce_request("t", [VALUE]), PRODUCE_VERSION)
        assert answer.responses[0].partition_responses[0].error_code == 0
        throttled_ms.append(answer.throttle_time_ms)
        throttled_ms.append(client.ask(fetch_request("t", number, wait_ms=0), FETCH_VERSION).throttle_time_ms)
        if number == 10:
            broker.system.clock_ahead_ms -= DAY_MS
            created = client.ask(requests.create_topics(requests.creatable("other")))
            assert created.topics[0].error_code == 0
        broker.advance(1)
    assert set(throttled_ms) == {0}
    broker.stop()


def test_housekeeping_goes_on(broker: SimulatedBroker) -> None:
    broker.create("t")
    client = broker.client()
    broker.system.clock_ahead_ms -= DAY_MS
    for _ in range(40):
        client.ask(broker.produce_request("t", [bytes(100_000)]), PRODUCE_VERSION)
    log = broker.broker.topics.by_name["t"].partitions[0].log
    before = log.size_bytes
    broker.advance(70)
    assert log.size_bytes <= before - (1 << 20)
    broker.stop()


def test_what_was_removed_leaves_the_disk(broker: SimulatedBroker, tmp_path: Path) -> None:
    for name in ("t", "u"):
        broker.create(name)
    client = broker.client()
    for name in ("t", "u"):
        for _ in range(40):
            client.ask(broker.produce_request(name, [bytes(100_000)]), PRODUCE_VERSION)
    log = broker.broker.topics.by_name["t"].partitions[0].log
    while not log.log_start_offset:
        broker.advance(1)
    client.ask(requests.delete_topics("u"))
    files = broker.files
    assert doomed(files, tmp_path)
    broker.system.clock_ahead_ms -= DAY_MS
    broker.advance(3)
    assert not doomed(files, tmp_path)
    broker.stop()


def doomed(files: SimulatedFiles, folder: Path) -> tuple[list[str], list[str]] | None:
    """What is on its way out of a data folder: folders, and files of the topic t."""
    folders = [name for name in files.folders(str(folder)) if name.endswith("-delete")]
    segments = [name for name in files.sizes(f"{folder}/t-0") if name.endswith(".deleted")]
    return (folders, segments) if folders or segments else None


@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize("set_by_ms", [-DAY_MS, DAY_MS])
def test_a_transaction_may_take_as_long_as_it_said(tmp_path: Path, set_by_ms: int, is_loaded: bool) -> None:
    broker = SimulatedBroker(tmp_path)
    broker.create("t")
    client = TransactionalClient(broker)
    client.init(timeout_ms=60_000)
    assert client.write(0, 0, b"a") == 0
    if is_loaded:
        broker.broker.transactions.stop()
        broker.broker.transactions.start()
        broker.advance(1)
    broker.system.clock_ahead_ms += set_by_ms
    broker.advance(45)
    assert client.state() == "Ongoing"
    broker.advance(30)
    assert client.state() == "CompleteAbort"
    broker.stop()


def test_a_replica_that_does_not_follow_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(tmp_path, replica_lag_time_max_ms="1000")
    try:
        brokers.start(1, 2)
        brokers.agree()
        brokers.create(1, "t", partitions=1, factor=2)
        brokers.in_sync()
        clock_ms = brokers.loop.system.clock_ms
        monkeypatch.setattr(type(brokers.loop.system), "clock_ms", lambda _system: clock_ms() - DAY_MS)
        leader_id = brokers.states(1)[0].leader_id
        brokers[3 - leader_id].replication.stop()
        topic = brokers[leader_id].topics.by_name["t"]
        produce = requests.produce(Topic("t", topic.topic_id), build_batch([b"v"], timestamp=0), acks=-1)
        answer = brokers.ask(leader_id, produce)
        assert answer.responses[0].partition_responses[0].error_code == 0
        brokers.wait(lambda: brokers.states(leader_id)[0].in_sync == (leader_id,))
    finally:
        brokers.close()


def test_nothing_is_too_old_by_a_clock_that_was_set_ahead_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aging, "PATIENCE_MS", 5 * MINUTE_S * 1000)
    broker = SimulatedBroker(
        tmp_path,
        log_roll_ms="1000",
        log_retention_check_interval_ms="30000",
        offsets_retention_check_interval_ms="30000",
    )
    broker.create("t")
    client = broker.client()
    topic = Topic("t", broker.broker.topics.by_name["t"].topic_id)

    def first_offset_and_committed() -> tuple[int, int]:
        log = broker.broker.topics.by_name["t"].partitions[0].log
        answer = broker.client().ask(group_requests.fetch_offsets("g", {topic: [0]}))
        return log.log_start_offset, answer.groups[0].topics[0].partitions[0].committed_offset

    for _ in range(3):
        assert client.ask(broker.produce_request("t", [VALUE]), PRODUCE_VERSION).responses[0].partition_responses
        broker.advance(2)
    while client.ask(group_requests.commit("g", topic, (0, 2))).topics[0].partitions[0].error_code:
        broker.advance(0.1)
    broker.system.clock_ahead_ms += 30 * DAY_MS
    broker.advance(4 * MINUTE_S)
    assert first_offset_and_committed() == (0, 2)
    broker.system.clock_ahead_ms -= 30 * DAY_MS
    broker.advance(8 * MINUTE_S)
    assert first_offset_and_committed() == (0, 2)
    broker.system.clock_ahead_ms += 30 * DAY_MS  # and it stays so
    broker.advance(8 * MINUTE_S)
    assert first_offset_and_committed() == (3, -1)
    broker.stop()
