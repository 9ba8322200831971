"""What only ZooKeeper can do to a store: servers and sessions that go, requests that are too large, names of hosts."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from ottla.broker.loop.loop import Loop
from ottla.controller.store import (
    CommitTooLarge,
    CommitUncertain,
    Create,
    Node,
    Operation,
    Put,
    Set,
    StoreError,
    StoreUnusable,
    size_of,
)
from ottla.controller.zookeeper.address import ZookeeperAddress, parse_zookeeper_address
from tests.controller.homes import PATIENCE_SECONDS, Home, OpenStore
from tests.zookeeper.servers import ZookeeperServers, missing

if TYPE_CHECKING:
    from ottla.controller.zookeeper.nodes import ZookeeperNodes

needs_servers = pytest.mark.skipif(missing() is not None, reason=str(missing()))


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home("zookeeper", tmp_path)
    yield home
    home.close()


# Addresses


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("zookeeper://a:1", "a:1", ""),
        ("zookeeper://a:1/", "a:1", ""),
        ("zookeeper://a,b:2/x/y/", "a:2181,b:2", "/x/y"),
        ("zookeeper://[::1]:3,[::2]/x", "[::1]:3,[::2]:2181", "/x"),
    ],
)
def test_an_address_is_hosts_and_a_chroot(text: str, hosts: str, chroot: str) -> None:
    assert parse_zookeeper_address(text) == ZookeeperAddress(hosts, chroot)


@pytest.mark.parametrize("text", ["", "a:x", "a:0", "a:70000", ":1", "a:1,,b:1", "a:1/x//y", "a:1/../y"])
def test_what_is_no_address_is_told_in_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"names no server|is not the path"):
        parse_zookeeper_address(f"zookeeper://{text}")


# Large commits


@pytest.mark.parametrize("chroot", ["", "/a-rather-long-name-of-a-cluster/below"])
def test_operations_of_the_promised_size_fit_and_larger_ones_are_refused(home: Home, chroot: str) -> None:
    home.address = home.address._replace(chroot=home.address.chroot + chroot)
    store = home.open()
    operations: list[Operation] = []
    left = store.store.max_commit_bytes
    while True:
        operation = Create(f"/{len(operations)}")
        if (left := left - size_of(operation)) < 0:
            break
        operations.append(operation)
    store.commit(operations)
    assert len(store.tree("")) == len(operations)
    with pytest.raises(CommitTooLarge, match="1,000,000 at once"):
        store.commit([Create("/large", bytes(1_000_000))])
    assert "/large" not in store.tree("")


def test_what_others_put_at_the_same_time_is_no_refusal(home: Home) -> None:
    first, second = home.open(), home.open()
    told: list[StoreError | None] = []
    for number in range(20):
        for store in (first, second):
            store.store.commit([Put(f"/a/{number}/b", b"%d" % number)], told.append)
    home.wait_until(lambda: len(told) == 40)
    assert told == [None] * 40
    assert {first.get(f"/a/{number}/b").version for number in range(20)} == {1}


# Sessions

STOPPED = """
import sys
from ottla.broker.loop.loop import Loop
from ottla.controller.store import Create
from ottla.controller.zookeeper.address import ZookeeperAddress
from ottla.controller.zookeeper.store import ZookeeperStore
loop = Loop()
store = ZookeeperStore(ZookeeperAddress(*sys.argv[1:]), loop.make_worker("s"), loop.post, session_timeout_seconds=1)
told = []
store.watch_session(lambda: told.append("lost"))
store.commit([Create("/alive", b"", True)], lambda failure: print(failure, flush=True))
loop.run_until(lambda: bool(told))
print("lost", flush=True)
store.commit([Create("/alive", b"", True)], lambda failure: print(failure, flush=True))
loop.run()
"""


def test_a_process_that_is_stopped_loses_its_session_is_told_and_begins_another(home: Home) -> None:
    store = home.open()
    with subprocess.Popen(
        (sys.executable, "-c", STOPPED, *home.address), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "None\n"
            first = store.get("/alive")
            told: list[str] = []
            store.store.watch("", told.append)
            process.send_signal(signal.SIGSTOP)
            home.wait_until(lambda: told.count("") >= 2)  # once when it was armed
            assert store.children("") == []
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline() == "lost\n"
            assert process.stdout.readline() == "None\n"
            assert store.get("/alive").created_in > first.created_in
        finally:
            process.kill()


# Servers


class Stores:
    """All closed at the end, also of a test that fails: one that is left would try to connect for ever."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.opened: list[OpenStore] = []

    def open(self, hosts: str, timeout_seconds: float = PATIENCE_SECONDS) -> OpenStore:
        from ottla.controller.zookeeper.store import ZookeeperStore

        worker = self.loop.make_worker("store")
        store = ZookeeperStore(
            ZookeeperAddress(hosts, "/ottla"), worker, self.loop.post, session_timeout_seconds=timeout_seconds
        )
        self.opened.append(OpenStore(self.loop, store))
        return self.opened[-1]

    def close(self) -> None:
        for store in self.opened:
            store.close()


@pytest.fixture
def stores() -> Iterator[Stores]:
    with contextlib.closing(Loop()) as loop, contextlib.closing(Stores(loop)) as stores:
        yield stores


@needs_servers
def test_a_commit_that_was_under_way_when_the_server_went_is_told_as_uncertain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, stores: Stores
) -> None:
    caplog.set_level(logging.INFO)
    with ZookeeperServers(tmp_path) as servers:
        store = stores.open(servers.hosts, timeout_seconds=120.0)  # a server starts slowly on a busy machine
        store.commit([Create("/a", b"0")])
        servers.pause(0)
        told: list[object] = []
        store.store.commit([Set("/a", b"1", 0)], told.append)
        store.store.get("/a", told.append)
        servers.kill(0)
        stores.loop.run_until(lambda: bool(told))
        assert isinstance(told[0], CommitUncertain)
        servers.start(0)
        stores.loop.run_until(lambda: len(told) == 2)  # a read waits for the server
        assert isinstance(told[1], Node)
        assert told[1].data in (b"0", b"1")
        stores.close()
    # Not of each attempt to connect.
    connected, lost = "ZooKeeper is connected", "the connection to ZooKeeper is lost"
    assert [record.message for record in caplog.records if record.name == "ottla.zookeeper"] == [
        connected,
        lost,
        connected,
    ]


@needs_servers
def test_a_server_that_does_not_answer_is_told_in_a_sentence(stores: Stores) -> None:
    store = stores.open("127.0.0.1:1", 0.5)
    with pytest.raises(StoreUnusable, match=r"no ZooKeeper server answers at 127\.0\.0\.1:1"):
        store.get("/a")


@pytest.mark.parametrize("kind", ["silent", "full"])
def test_a_server_that_says_nothing_at_first_does_not_cost_the_session(
    home: Home, stores: Stores, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As ZooKeeper does while it starts, or where packets are lost."""
    connect = socket.create_connection
    with contextlib.ExitStack() as stack:
        mute = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        if kind == "full":
            for _ in range(2):  # one more than its queue has room for
                waiting = stack.enter_context(socket.socket())
                waiting.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    waiting.connect(mute.getsockname())
        attempts: list[object] = []

        def connect_to_another_first(address: tuple[str, int], timeout: float) -> socket.socket:
            attempts.append(address)
            return connect(mute.getsockname() if len(attempts) == 1 else address, timeout)

        monkeypatch.setattr(socket, "create_connection", connect_to_another_first)
        store = stores.open(home.address.hosts, timeout_seconds=9.0)
        assert isinstance(store.tree(""), dict)
        assert len(attempts) == 2
        stores.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_answer_that_nobody_understands_costs_the_session_and_no_more(home: Home, stores: Stores) -> None:
    store = stores.open(home.address.hosts, timeout_seconds=9.0)
    lost: list[str] = []
    store.store.watch_session(lambda: lost.append("lost"))
    store.tree("")
    nodes = cast("ZookeeperNodes", store.store._nodes)
    connection, calls = nodes._client._connection, []
    read = connection._read_response

    def fail_first(*answer: Any) -> Any:
        calls.append(answer)
        if len(calls) == 1:
            raise RuntimeError("Invalid error code")
        return read(*answer)

    connection._read_response = fail_first
    assert isinstance(store.tree(""), dict)
    assert lost == ["lost"]
    stores.close()


def test_a_request_that_gets_no_answer_is_given_up(home: Home, stores: Stores) -> None:
    store = stores.open(home.address.hosts, timeout_seconds=2.0)
    store.tree("")
    nodes = cast("ZookeeperNodes", store.store._nodes)
    nodes._client._call = lambda request, answer: None
    with pytest.raises(StoreUnusable, match="no ZooKeeper server answers"):
        store.get("/a")
    with pytest.raises(CommitUncertain):
        store.commit([Create("/a")])
    del nodes._client._call
    stores.close()


@needs_servers
def test_of_three_servers_any_may_go_and_what_changes_meanwhile_is_told(tmp_path: Path, stores: Stores) -> None:
    with ZookeeperServers(tmp_path, 3) as servers:
        # Each begins at another server.
        each = [stores.open(host) for host in servers.hosts.split(",")]
        each[0].commit([Create("/a", b"0"), Create("/e", b"", True)])
        wandering = stores.open(servers.hosts)
        lost: list[str] = []
        wandering.store.watch_session(lambda: lost.append("lost"))
        told: list[str] = []
        wandering.store.watch("/a", told.append)
        wandering.commit([Create("/mine", b"", True)])
        leader = servers.leader
        others = [index for index in range(3) if index != leader]
        servers.kill(leader)
        told.clear()
        done: list[object] = []
        each[others[0]].store.commit([Set("/a", b"1")], done.append)
        while not (done and done[0] is None and told):
            stores.loop.run_once()
            if done and isinstance(done[0], StoreError):
                done.clear()
                each[others[0]].store.commit([Set("/a", b"1")], done.append)
        wandering.settle()
        assert wandering.get("/a").data == b"1"
        assert wandering.get("/mine").is_ephemeral
        assert lost == []
        servers.start(leader)
        stores.close()
