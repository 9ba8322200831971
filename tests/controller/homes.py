"""The homes of a store, each with a way to open it once more and to wait for its answers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest

from ottla.broker.loop.loop import Loop
from ottla.controller.local_store import LocalNodes, LocalStore
from ottla.controller.memory_nodes import MemoryNodes, MemoryTree
from ottla.controller.sqlite_nodes import SqliteNodes
from ottla.controller.store import Node, Operation, StoreError
from ottla.controller.zookeeper.address import ZookeeperAddress
from tests.controller.other_process import OtherProcess
from tests.zookeeper import servers

if TYPE_CHECKING:
    from ottla.controller.zookeeper.nodes import ZookeeperNodes
    from ottla.controller.zookeeper.store import ZookeeperStore

HOMES = ["sqlite", "sqlite of two processes", "memory", "zookeeper"]
SHORT_SECONDS = 0.2  # a session that shall be lost soon
PATIENCE_SECONDS = 30.0
AnyStore: TypeAlias = "LocalStore | ZookeeperStore"


class Home:
    """What several stores share: a file, a tree in memory, or a server."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.loop = Loop()
        self._kind = kind
        self._path = str(folder / "store.sqlite")
        self._tree = MemoryTree()
        self._stores: list[OpenStore] = []
        if kind == "zookeeper":
            if (reason := servers.missing()) is not None:
                pytest.skip(reason)
            self.address = ZookeeperAddress(servers.shared_server().hosts, f"/{uuid.uuid4().hex}/below")

    def open(self, *, has_short_session: bool = False) -> OpenStore:
        worker = self.loop.make_worker("store")
        seconds = SHORT_SECONDS if has_short_session else None
        store: AnyStore
        if self._kind == "zookeeper":
            from ottla.controller.zookeeper.store import ZookeeperStore  # not everybody has kazoo

            store = ZookeeperStore(self.address, worker, self.loop.post, session_timeout_seconds=PATIENCE_SECONDS)
        else:
            store = LocalStore(partial(self._open_nodes, len(self._stores), seconds), worker)
        self._stores.append(opened := OpenStore(self.loop, store))
        return opened

    def _open_nodes(self, number: int, timeout_seconds: float | None) -> LocalNodes:
        if self._kind == "memory":
            return MemoryNodes(self._tree)
        if self._kind == "sqlite of two processes" and number:
            return cast(LocalNodes, OtherProcess(self._path, timeout_seconds))
        return SqliteNodes(self._path, survives_power_loss=False, session_timeout_seconds=timeout_seconds)

    def expire(self, store: OpenStore, other: OpenStore, path: str) -> None:
        """End a short session, which has an ephemeral node at the path, while another looks on."""
        nodes = store.store._nodes
        if isinstance(nodes, MemoryNodes):
            nodes.expire()
        elif self._kind == "zookeeper":
            end_session(cast("ZookeeperNodes", nodes))
        while path in other.tree(""):
            other.look()

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        self.loop.call_later(PATIENCE_SECONDS, lambda: None)
        self.loop.run_until(lambda: is_so() or time.monotonic() > deadline)
        assert is_so()

    def close(self) -> None:
        for store in self._stores:
            store.close()
        self.loop.close()


def end_session(nodes: ZookeeperNodes) -> None:
    """As the server does after the timeout: whoever has the password may end a session."""
    from kazoo.client import KazooClient

    client = KazooClient(hosts=nodes._address.hosts, client_id=nodes._client.client_id)
    client.start()
    client.stop()
    client.close()


class OpenStore:
    """A store whose answers are waited for."""

    def __init__(self, loop: Loop, store: AnyStore) -> None:
        self._loop = loop
        self.store = store
        self._is_closed = False

    def _wait_for(self, question: Callable[[Callable[[Any], None]], None]) -> Any:
        answers: list[Any] = []
        question(answers.append)
        assert not answers, "answers come later, on the loop"
        self._loop.run_until(lambda: bool(answers))
        if isinstance(answers[0], StoreError):
            raise answers[0]
        return answers[0]

    def get(self, path: str) -> Node:
        found: Node = self._wait_for(partial(self.store.get, path))
        return found

    def children(self, path: str) -> list[str]:
        found: list[str] = self._wait_for(partial(self.store.children, path))
        return found

    def tree(self, path: str) -> dict[str, Node]:
        found: dict[str, Node] = self._wait_for(partial(self.store.tree, path))
        return found

    def commit(self, operations: Iterable[Operation], *, is_vital: bool = False) -> None:
        self._wait_for(lambda done: self.store.commit(operations, done, is_vital=is_vital))

    def look(self) -> None:
        """Until what others did has been told."""
        self.store.look()
        self.tree("")

    def settle(self) -> None:
        """Until watches have been told of what has happened, however that comes."""
        for _ in range(3):  # ZooKeeper tells it, it is armed anew, and then it is told
            self.look()

    def end(self, how: Callable[[], None]) -> None:
        self._is_closed = True
        how()

    def close(self) -> None:
        if not self._is_closed:
            self.end(self.store.close)
