"""Metrics: what was done is counted, and the text is one that Prometheus reads."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

import pytest

from ottla.broker.metrics import exposition
from ottla.log.errors import StorageFailed
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
    port = ottla.call(lambda broker: broker.serve_pages("127.0.0.1", 0))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert b"ottla_topics 0" in page.read()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10) as page:
        assert page.read() == b"ok\n"


def test_a_failed_disk_is_told_by_the_health_page(ottla: LocalBroker) -> None:
    ottla.topic("t")
    port = ottla.call(lambda broker: broker.serve_pages("127.0.0.1", 0))
    failure = StorageFailed("it failed")
    ottla.call(lambda broker: setattr(broker.logs.logs["t", 0], "failure", str(failure)))
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=10)
    assert refused.value.code == 503
    assert b"t-0" in refused.value.read()
