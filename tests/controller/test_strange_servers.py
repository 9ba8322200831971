"""What takes connections as a ZooKeeper server does, and then is none."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

pytest.importorskip("kazoo")

from ottla.controller.store import StoreUnusable
from ottla.controller.zookeeper.address import ZookeeperAddress
from ottla.controller.zookeeper.nodes import NodeWatcher, ZookeeperNodes

ANSWERS = {
    "nothing": b"",
    "nonsense": struct.pack(">i", 30) + b"HTTP/1.1 400 Bad Request\r\n....",
    "less": b"\0\0\0\3abc",
}
SESSION = struct.pack(">iiqi", 0, 1000, 7, 16) + bytes(16)


def frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        return stream.read(int.from_bytes(stream.read(4), "big"))


def serve(connection: socket.socket, answer: bytes) -> None:
    with suppress(OSError), connection:
        frame(connection)
        connection.sendall(struct.pack(">i", len(SESSION)) + SESSION)
        connection.recv(4)
        connection.sendall(answer)


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[ZookeeperAddress]:
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                threading.Thread(target=serve, args=(connection, request.param), daemon=True).start()

    threading.Thread(target=run, daemon=True).start()
    yield ZookeeperAddress(f"127.0.0.1:{server.getsockname()[1]}")
    server.shutdown(socket.SHUT_RDWR)
    server.close()


@pytest.mark.parametrize("address", ANSWERS.values(), ids=ANSWERS, indirect=True)
def test_it_is_told_in_a_sentence(address: ZookeeperAddress, capfd: pytest.CaptureFixture[str]) -> None:
    told = NodeWatcher(lambda _path: None, lambda: None, lambda: None)
    with pytest.raises(StoreUnusable, match=f"no ZooKeeper server answers at {address.hosts}"):
        ZookeeperNodes(address, 1.0, told)
    assert "Traceback" not in capfd.readouterr().err
