"""A handler that fails costs its own client the connection, and nobody else anything."""

from __future__ import annotations

import socket
import struct

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.broker.dispatch import Context
from ottla.broker.handlers import describe_cluster
from ottla.broker.loop import slices
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import Slices, Steps
from ottla.wire.messages.api_versions import ApiVersionsResponse
from ottla.wire.messages.describe_cluster import DescribeClusterResponse

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, -1)
DESCRIBE_CLUSTER = struct.pack(">ihhihb3s", 14, 60, 0, 1, -1, 0, b"\0\0\0")


def fails(*_arguments: object) -> DescribeClusterResponse:
    raise ZeroDivisionError


def cannot_be_written(*_arguments: object) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code="no number", api_keys=[])  # type: ignore[arg-type]


def cannot_be_written_later(broker: Broker, _request: object, context: Context) -> None:
    broker.loop.call_soon(lambda: context.reply(cannot_be_written()))


@pytest.mark.parametrize("handler", [fails, cannot_be_written, cannot_be_written_later])
def test_a_bug_closes_one_connection(monkeypatch: pytest.MonkeyPatch, handler: object) -> None:
    monkeypatch.setattr(describe_cluster, "handle", handler)
    with ottla.testing.broker() as broker:
        address = (broker.host, broker.port)
        with socket.create_connection(address, 10) as unlucky, socket.create_connection(address, 10) as other:
            unlucky.sendall(DESCRIBE_CLUSTER)
            assert unlucky.recv(1) == b""
            other.sendall(API_VERSIONS)
            assert len(other.recv(4)) == 4


def test_a_large_request_is_taken_out_of_shared_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "AT_ONCE_SECONDS", -1.0)  # the machine was busy elsewhere for longer than that
    memory = bytearray(b"asked")
    answers: list[bytes] = []

    def steps() -> Steps:
        request = bytes(memory)
        yield None
        return request

    loop = Loop()
    Slices(loop).run(steps(), lambda answer, _failure: answers.append(answer))
    memory[:] = b"other"  # somebody else's, which came next
    while not answers:
        loop.run_once()
    loop.close()
    assert answers == [b"asked"]


@pytest.mark.parametrize("takes_turns", [True, False])
def test_who_fails_at_a_result_does_not_keep_others_from_theirs(takes_turns: bool) -> None:
    loop = Loop()
    slices = Slices(loop, takes_turns=takes_turns)
    results: list[int] = []

    def steps(result: int) -> Steps:
        yield None
        return result

    def failing(_result: int, _failure: Exception | None) -> None:
        raise ZeroDivisionError

    slices.start(steps(1), failing)
    slices.start(steps(2), lambda result, _failure: results.append(result))
    for _ in range(5):
        loop.call_soon(lambda: None)  # so that it does not wait for anybody
        loop.run_once()
    loop.close()
    assert results == [2]
