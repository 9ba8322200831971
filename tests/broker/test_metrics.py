"""Metrics: what was done is counted, and the text is one that Prometheus reads."""

from __future__ import annotations

import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Generator, Iterator

import pytest

from ottla.broker.broker import Broker
from ottla.broker.metrics import exposition, exposition_steps
from ottla.log import visible
from ottla.log.errors import StorageFailed
from ottla.log.segment import Segment
from ottla.records.batch import BatchHeader
from ottla.testing import LocalBroker
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.conformance.connection import Connection

SAMPLE = re.compile(r'[a-z_]+(\{[a-z]+="(\\.|[^"\\])*"(,[a-z]+="(\\.|[^"\\])*")*\})? -?\d+(\.\d+)?')


def commit(broker: LocalBroker, group: str, topic: str, offset: int) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group, member_id="", topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])]
    )
    connection = Connection((broker.host, broker.port))
    connection.send(encode_request(1, None, request, 8))
    frame = connection.receive(10)
    connection.close()
    assert isinstance(frame, bytes)
    response = decode_response(frame, request.api, 8)[1]
    assert response.topics[0].partitions[0].error_code == 0  # type: ignore[attr-defined]


def test_every_line_is_a_comment_or_a_sample(ottla: LocalBroker) -> None:
    ottla.topic("t")
    ottla.put("t", b"a")
    commit(ottla, 'a "quoted"\\group\n', "t", 0)
    for line in ottla.call(exposition).splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or SAMPLE.fullmatch(line), line


def test_requests_and_lags_are_counted(ottla: LocalBroker) -> None:
    ottla.topic("t")
    ottla.put("t", b"a", b"b", b"c")
    commit(ottla, "g", "t", 1)
    lines = ottla.call(exposition).splitlines()
    assert 'ottla_requests_total{api="OffsetCommit"} 1' in lines
    assert 'ottla_group_lag{group="g",topic="t",partition="0"} 2' in lines
    assert 'ottla_groups{protocol="classic",state="Empty"} 1' in lines
    assert "ottla_commits_total 1" in lines
    commit(ottla, "g", "t", 3)
    assert 'ottla_group_lag{group="g",topic="t",partition="0"} 0' in ottla.call(exposition).splitlines()


def test_the_pages_are_served_on_a_port_of_their_own(ottla: LocalBroker) -> None:
    port = ottla.call(lambda broker: broker.pages.serve("127.0.0.1", 0))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"ottla_topics 0" in page.read()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as page:
        assert page.read() == b"ok\n"


def test_a_failed_disk_is_told_by_the_health_page(ottla: LocalBroker) -> None:
    ottla.topic("t")
    port = ottla.call(lambda broker: broker.pages.serve("127.0.0.1", 0))
    failure = StorageFailed("it failed")
    ottla.call(lambda broker: setattr(broker.logs.logs["t", 0], "failure", str(failure)))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10)
    assert refused.value.code == 503
    assert b"t-0" in refused.value.read()


def test_who_is_far_behind_is_counted_in_slices_and_once(ottla: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a pause a scrape would hold the loop for all batches of all groups."""
    ottla.topic("t")
    for _ in range(3 * visible.LOOKED_AT_ONCE):
        ottla.put("t", b"a")
    for number in range(10):
        commit(ottla, f"g{number}", "t", number)

    def look(broker: Broker) -> tuple[list[int], list[str]]:
        steps, looked = exposition_steps(broker), [0]
        batches = Segment.batches

        def counted(segment: Segment, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
            for found in batches(segment, position):
                looked[-1] += 1
                yield found

        with monkeypatch.context() as patch:
            patch.setattr(Segment, "batches", counted)
            while True:
                try:
                    next(steps)
                except StopIteration as end:
                    return looked, end.value.decode().splitlines()
                looked.append(0)

    end = 3 * visible.LOOKED_AT_ONCE
    looked, lines = ottla.call(look)
    for number in range(10):
        assert f'ottla_group_lag{{group="g{number}",topic="t",partition="0"}} {end - number}' in lines
    assert max(looked) <= visible.LOOKED_AT_ONCE + 1
    assert end <= sum(looked) < 2 * end
    ottla.put("t", b"a")
    commit(ottla, "g3", "t", end)
    looked, lines = ottla.call(look)
    assert f'ottla_group_lag{{group="g0",topic="t",partition="0"}} {end + 1}' in lines
    assert 'ottla_group_lag{group="g3",topic="t",partition="0"} 1' in lines
    assert sum(looked) < 500


def test_a_scrape_does_not_wait_for_all_that_is_to_be_counted(
    ottla: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = ottla.call(lambda broker: broker.pages.serve("127.0.0.1", 0))

    def lag() -> list[str]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            return [line for line in page.read().decode().splitlines() if line.startswith("ottla_group_lag{")]

    ottla.topic("t")
    for _ in range(3):
        ottla.put("t", b"a")
    commit(ottla, "g", "t", 0)
    assert lag() == ['ottla_group_lag{group="g",topic="t",partition="0"} 3']
    ottla.put("t", b"a")
    monkeypatch.setattr("ottla.broker.coordinators.lags.PATIENCE_SECONDS", 0)
    assert lag() == ['ottla_group_lag{group="g",topic="t",partition="0"} 3']  # which was known
    deadline = time.monotonic() + 30
    while lag() != ['ottla_group_lag{group="g",topic="t",partition="0"} 4']:  # and is counted meanwhile
        assert time.monotonic() < deadline


def test_pages_of_many_who_ask_at_once_are_made_once(ottla: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    may_go_on = threading.Event()

    def slow(_broker: Broker) -> Generator[None, None, bytes]:
        made.append(1)
        while not may_go_on.is_set():
            yield
        return b"#" * 3_000_000  # more than a socket takes at once

    monkeypatch.setattr("ottla.broker.pages.exposition_steps", slow)
    port = ottla.call(lambda broker: broker.pages.serve("127.0.0.1", 0))
    connections = [socket.create_connection(("127.0.0.1", port), 10) for _ in range(3)]
    for connection in connections:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as page:
        assert page.read() == b"ok\n"  # which is asked behind them, and does not wait for them
    connections.pop().close()
    may_go_on.set()
    for connection in connections:
        with connection, connection.makefile("rb") as answer:
            assert answer.read().count(b"#") == 3_000_000
    assert made == [1]
