"""The listener: bounds on connections, in all, by address and by time."""

from __future__ import annotations

import errno
import logging
import os
import resource
import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from ottla.broker.loop.loop import Loop, Timer
from ottla.broker.loop.system import SocketBuffers
from ottla.broker.network.admission import Admission
from ottla.broker.network.connection import Connection
from ottla.broker.network.server import Server


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


def ignore(_connection: Connection, _frame: memoryview) -> None:
    pass


def connect(server: Server) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=5)


def turn(loop: Loop) -> None:
    for _ in range(5):
        loop.call_soon(lambda: None)
        loop.run_once()


def is_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False


@pytest.mark.parametrize("bound", ["max_connections", "max_connections_per_ip"])
def test_one_connection_too_many_is_closed_and_the_others_stay(loop: Loop, bound: str) -> None:
    admission = Admission()
    setattr(admission, bound, 2)
    server = Server(loop, "127.0.0.1", 0, ignore, admission=admission)
    clients = [connect(server) for _ in range(3)]
    turn(loop)
    assert [is_closed(client) for client in clients] == [False, False, True]
    clients[0].close()
    turn(loop)
    clients.append(connect(server))
    turn(loop)
    assert not is_closed(clients[-1])
    server.close()
    for client in clients:
        client.close()


def test_an_idle_connection_is_closed(loop: Loop) -> None:
    server = Server(loop, "127.0.0.1", 0, ignore, max_idle_seconds=0.02)
    with connect(server) as client:
        while not server.connections:
            loop.run_once()
        while server.connections:
            loop.run_once()
        assert is_closed(client)
    server.close()


def test_all_connections_end_with_the_server(loop: Loop) -> None:
    server = Server(loop, "127.0.0.1", 0, ignore)
    with connect(server) as client:
        turn(loop)
        server.close()
        assert is_closed(client)
        assert not server.connections


def reset(client: socket.socket) -> None:
    """End it in a way that the other side cannot ask who it was."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_a_connection_that_is_reset_before_it_is_taken_in_does_not_count_for_ever(loop: Loop) -> None:
    admission = Admission(max_connections=2, max_connections_per_ip=2)
    server = Server(loop, "127.0.0.1", 0, ignore, admission=admission)
    for _ in range(5):
        clients = [connect(server) for _ in range(2)]
        for client in clients:
            reset(client)
        turn(loop)
    with connect(server) as client:
        turn(loop)
        assert not is_closed(client)
        assert len(server.connections) == 1
    server.close()


def test_a_connection_that_cannot_be_watched_does_not_count_for_ever(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(loop, "127.0.0.1", 0, ignore, admission=Admission(max_connections=1))

    def fail(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(loop, "watch", fail)
        with connect(server) as client:
            turn(loop)
            assert is_closed(client)
    with connect(server) as client:
        turn(loop)
        assert not is_closed(client)
    server.close()


def test_a_broker_without_files_waits_and_says_so_once(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    server = Server(loop, "127.0.0.1", 0, ignore)
    with connect(server) as client:  # the system answers it before the server does
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            loop.run_once()
            assert not server.connections
            # It sleeps until it looks again: a listener that is ready would end the wait at once.
            assert not loop.system.wait(0.05)
            loop.call_later(0.6, loop.stop)
            loop.run()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        told = [record for record in caplog.records if "could not be accepted" in record.getMessage()]
        assert len(told) == 1
        while not server.connections:
            loop.run_once()
        assert not is_closed(client)
    server.close()


def test_buffers_are_of_the_size_that_was_asked_for(loop: Loop) -> None:
    server = Server(loop, "127.0.0.1", 0, ignore, buffers=SocketBuffers(send_bytes=10_000, receive_bytes=20_000))
    with connect(server):
        turn(loop)
        [connection] = server.connections
        with socket.socket(fileno=os.dup(connection.socket.fileno())) as served:
            sizes = [served.getsockopt(socket.SOL_SOCKET, name) for name in (socket.SO_SNDBUF, socket.SO_RCVBUF)]
    assert sizes == [20_000, 40_000]  # Linux keeps as much again for itself
    server.close()


@pytest.mark.parametrize(("max_idle_seconds", "least_delay"), [(-0.001, None), (0.0, 0.1), (600.0, 150.0)])
def test_connections_are_looked_at_now_and_then(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, max_idle_seconds: float, least_delay: float | None
) -> None:
    delays: list[float] = []
    call_later = loop.call_later

    def note(seconds: float, callback: Callable[[], None]) -> Timer:
        delays.append(seconds)
        return call_later(seconds, callback)

    monkeypatch.setattr(loop, "call_later", note)
    Server(loop, "127.0.0.1", 0, ignore, max_idle_seconds=max_idle_seconds).close()
    assert delays == ([] if least_delay is None else [least_delay])


def test_a_connection_may_be_silent_for_ever_if_the_setting_says_so(loop: Loop) -> None:
    server = Server(loop, "127.0.0.1", 0, ignore, max_idle_seconds=-0.001)
    with connect(server) as client:
        turn(loop)
        assert len(server.connections) == 1
        assert not is_closed(client)
    server.close()
