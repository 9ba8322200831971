"""Which acknowledgements wait for the disk, by the settings of the broker and of the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ottla.broker.durability import Durability
from ottla.broker.loop import Loop, Timer
from ottla.log.errors import StorageFailed
from ottla.log.log import Log
from ottla.log.topic_config import TopicConfig
from ottla.replica.partition import Partition
from ottla.testing.files import Effect, SimulatedFiles
from tests.log.writing import append, new_log


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def run_until_synced(loop: Loop, log: Log) -> None:
    while log.recovery_point < log.end_offset:
        loop.run_once()


def partition_of(log: Log) -> Partition:
    return Partition("topic", 0, bytes(16), log, [1], 0)


def test_the_page_cache_is_enough_where_nobody_asks_for_more(loop: Loop) -> None:
    durability, log = Durability(loop, waits_for_all=False), new_log()
    append(log)
    assert not durability.must_wait(log)
    assert log.recovery_point == 0


@pytest.mark.parametrize("config", [TopicConfig(flush_messages=1), TopicConfig(flush_ms=0)])
def test_each_append_waits_where_none_may_be_lost(loop: Loop, config: TopicConfig) -> None:
    durability, log = Durability(loop, waits_for_all=False), new_log(config=config)
    for _ in range(3):
        append(log)
        assert durability.must_wait(log)
        acknowledged: list[StorageFailed | None] = []
        durability.when_committed(partition_of(log), log.end_offset, acknowledged.append)
        assert acknowledged == []
        while not acknowledged:
            loop.run_once()
        assert acknowledged == [None]
        assert log.recovery_point == log.end_offset
        assert not durability.must_wait(log)


def test_fewer_records_than_flush_messages_are_acknowledged_and_not_on_the_disk(loop: Loop) -> None:
    durability, log = Durability(loop, waits_for_all=False), new_log(config=TopicConfig(flush_messages=10))
    for _ in range(2):
        append(log, [b"value"] * 9)
        assert not durability.must_wait(log)
        append(log)
        assert durability.must_wait(log)
        append(log)  # while the sync of the others is under way
        assert durability.must_wait(log)
        durability.when_committed(partition_of(log), log.end_offset, lambda _failure: None)
        run_until_synced(loop, log)


def test_what_flush_ms_asks_for_is_done_in_time_and_once(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    durability, log = Durability(loop, waits_for_all=False), new_log(config=TopicConfig(flush_ms=20))
    delays: list[float] = []
    call_later = loop.call_later

    def note(seconds: float, done: Callable[[], None]) -> Timer:
        delays.append(seconds)
        return call_later(seconds, done)

    monkeypatch.setattr(loop, "call_later", note)
    for _ in range(2):
        for _ in range(3):
            append(log)
            assert not durability.must_wait(log)
        assert delays == [0.02]
        run_until_synced(loop, log)
        delays.clear()


def test_a_sync_that_fails_is_told_to_who_waits_and_stops_the_log(loop: Loop) -> None:
    files = SimulatedFiles()
    durability, log = Durability(loop, waits_for_all=True), new_log(files)
    append(log)
    failed: list[set[Partition]] = []
    partition = partition_of(log)
    durability.when_on_disk([(partition, log.end_offset)], failed.append)
    files.arm(files.operation_count + 1, Effect.FAIL)
    while not failed:
        loop.run_once()
    assert failed == [{partition}]
    assert log.failure is not None
