"""Proxies in place of a network: what is cut waits, one way or both, and a port without a listener is refused."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import time
from collections.abc import Iterator

import pytest

from tests.chaos.proxies import ProxyNetwork, _Link, _Way

SECONDS = 60.0
A_MOMENT_S = 0.2


class Ends:
    """A connection from one machine to another."""

    def __init__(self, network: ProxyNetwork) -> None:
        self.network = network
        self.sender, self.receiver = network.add_machine(), network.add_machine()
        self._listener = socket.create_server((self.receiver.host, 0))
        self.port: int = self._listener.getsockname()[1]
        self.host = network.reach(self.sender, self.receiver, self.port)

    def connect(self) -> socket.socket:
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return socket.create_connection((self.host, self.port), SECONDS)
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def accept(self) -> socket.socket:
        """The next connection that was made to be used: the proxy looks whether somebody listens, too."""
        while True:
            accepted, _ = self._listener.accept()
            accepted.settimeout(SECONDS)
            with contextlib.suppress(ConnectionResetError):
                if accepted.recv(1, socket.MSG_PEEK):
                    return accepted
            accepted.close()

    def pair(self) -> tuple[socket.socket, socket.socket]:
        near = self.connect()
        near.sendall(b"a")
        far = self.accept()
        assert far.recv(1) == b"a"
        return near, far

    def stop_listening(self) -> None:
        self._listener.close()


@pytest.fixture
def ends() -> Iterator[Ends]:
    with ProxyNetwork() as network:
        made = Ends(network)
        yield made
        made.stop_listening()


def is_silent(end: socket.socket) -> bool:
    end.settimeout(A_MOMENT_S)
    try:
        end.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        end.settimeout(SECONDS)
    return False


def test_what_is_cut_comes_when_it_is_mended(ends: Ends) -> None:
    near, far = ends.pair()
    ends.network.cut(ends.sender.host, ends.receiver.host)
    near.sendall(b"b")
    far.sendall(b"c")
    assert near.recv(1) == b"c"  # the other direction goes on
    assert is_silent(far)
    ends.network.mend(ends.sender.host, ends.receiver.host)
    assert far.recv(1) == b"b"
    near.close()
    assert far.recv(1) == b""
    far.close()


def test_nobody_hears_of_an_end_that_is_cut_off(ends: Ends) -> None:
    near, far = ends.pair()
    ends.network.cut(ends.receiver.host, ends.sender.host)
    far.close()
    assert is_silent(near)
    ends.network.mend(ends.receiver.host, ends.sender.host)
    assert near.recv(1) == b""
    near.close()


def test_a_new_connection_leads_nowhere_while_it_is_cut(ends: Ends) -> None:
    ends.connect().close()
    ends.network.cut(ends.receiver.host, ends.sender.host)
    with ends.connect() as near:
        near.sendall(b"b")
        assert is_silent(near)
        ends.network.mend(ends.receiver.host, ends.sender.host)
        with ends.accept() as far:
            assert far.recv(1) == b"b"


def test_a_port_at_which_nobody_listens_is_refused(ends: Ends) -> None:
    ends.connect().close()
    ends.stop_listening()
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            with socket.create_connection((ends.host, ends.port), SECONDS) as near:
                near.recv(1)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:
            pass
        assert time.monotonic() < deadline


def test_who_is_outside_has_a_way_of_its_own(ends: Ends) -> None:
    near, far = ends.pair()
    outside = ends.network.reach(None, ends.receiver, ends.port)
    assert outside == ends.receiver.router_host
    ends.network.cut(ends.receiver.host, outside)
    far.sendall(b"c")
    assert near.recv(1) == b"c"
    near.close()
    far.close()


def test_a_network_that_ends_while_it_is_being_made_leaves_nothing_open() -> None:
    """Each end cancels a link at another of its steps."""
    with socket.create_server(("127.0.0.1", 0)) as somebody:
        port: int = somebody.getsockname()[1]
        for loop_rounds in range(12):
            link = _Link(("127.7.9.1", port), ("127.0.0.1", port), _Way(), _Way())
            asyncio.run(_cancelled_after(link, loop_rounds))
    gc.collect()  # a socket that was left open is a warning, and so a failure


async def _cancelled_after(link: _Link, loop_rounds: int) -> None:
    task = asyncio.create_task(link.run())
    for _ in range(loop_rounds):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
