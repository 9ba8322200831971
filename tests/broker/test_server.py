"""The listener: bounds on connections, in all, by address and by time."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ottla.broker.connection import Connection
from ottla.broker.loop import Loop
from ottla.broker.server import Admission, Server


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
    server = Server(loop, "127.0.0.1", 0, ignore, admission=Admission(**{bound: 2}))
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
