"""Several real brokers with real sockets on one loop of the test, and one store in memory for all of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.loop.loop import Loop
from ottla.broker.network.peer import Peer, PeerFailure
from ottla.controller.layout import PartitionState
from ottla.controller.local_store import LocalStore
from ottla.controller.memory_nodes import MemoryNodes, MemoryTree
from ottla.log.files import DiskFiles
from ottla.testing.local_broker import QUICK_SETTINGS
from ottla.wire.messages.create_topics import CreatableTopicResult
from ottla.wire.schema import Request
from tests.conformance import requests

PATIENCE_SECONDS = 120.0
LOOK_SECONDS = 0.02


class Brokers:
    def __init__(self, folder: Path, **settings: str) -> None:
        self.loop = Loop()
        self.tree = MemoryTree()
        self.running: dict[int, Broker] = {}
        self._folder = folder
        self.disks: dict[int, DiskFiles] = {}  # the files of brokers that need others than usual
        self.more_folders: dict[int, list[str]] = {}
        self._settings = QUICK_SETTINGS | {name.replace("_", "."): text for name, text in settings.items()}
        self._peers: list[Peer] = []
        self._nodes: list[MemoryNodes] = []  # of the sessions, in the order in which they began
        self._sessions: dict[int, MemoryNodes] = {}

    def __getitem__(self, node_id: int) -> Broker:
        return self.running[node_id]

    def start(self, *node_ids: int, boot_id: str = "first") -> None:
        for node_id in node_ids:
            settings = self._settings | {"node.id": str(node_id), "listeners": "PLAINTEXT://127.0.0.1:0"}
            folder = self._folder / str(node_id)
            folder.mkdir(exist_ok=True)
            broker = Broker(
                self.loop,
                self.disks.get(node_id, DiskFiles()),
                str(folder),
                BrokerSettings(settings),
                open_store=self._open_store,
                boot_id=boot_id,
                more_folders=self.more_folders.get(node_id, ()),
            )
            try:
                broker.start()
            except BaseException:
                broker.stop()
                raise
            self.running[node_id] = broker
            self._sessions[node_id] = self._nodes[-1]

    def _open_store(self, loop: Loop) -> LocalStore:
        def open_nodes() -> MemoryNodes:
            nodes = MemoryNodes(self.tree)
            self._nodes.append(nodes)
            return nodes

        store = LocalStore(open_nodes, loop.make_worker("store"))
        store.keep_looking(LOOK_SECONDS, loop.call_later)
        return store

    def end_session(self, node_id: int) -> None:
        """The store believes that a broker is gone."""
        self._sessions[node_id].expire()

    def stop(self, node_id: int) -> None:
        self.running.pop(node_id).stop()

    def kill(self, node_id: int) -> None:
        """Its sockets close and its session ends, as when its process dies."""
        self.running.pop(node_id).abandon()

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        for node_id in list(self.running):
            self.kill(node_id)
        self.loop.close()

    # Looking

    def wait(self, is_done: Callable[[], bool]) -> None:
        late: list[bool] = []
        timer = self.loop.call_later(PATIENCE_SECONDS, lambda: late.append(True))
        self.loop.run_until(lambda: bool(late) or is_done())
        timer.cancel()
        assert not late, "it takes too long"

    def ask(self, node_id: int, request: Request, version: int | None = None) -> Any:
        address = self.running[node_id].address
        peer = Peer(self.loop, address.host, address.port, "test")
        self._peers.append(peer)
        answers: list[object] = []
        peer.send(request, request.api.highest if version is None else version, answers.append)
        self.wait(lambda: bool(answers))
        peer.close()
        assert not isinstance(answers[0], PeerFailure), answers[0]
        return answers[0]

    def create(self, node_id: int, name: str, partitions: int = 3, factor: int = 3) -> CreatableTopicResult:
        asked = requests.creatable(name, partitions=partitions, factor=factor)
        [result] = self.ask(node_id, requests.create_topics(asked)).topics
        assert isinstance(result, CreatableTopicResult)
        return result

    def states(self, node_id: int, name: str = "t") -> list[PartitionState]:
        return list(self.running[node_id].cluster.states[name])

    @property
    def controller_id(self) -> int:
        [found] = [node_id for node_id, broker in self.running.items() if broker.membership.is_controller]
        return found

    def agree(self) -> None:
        """Wait until all know of all others and of the same states, and everything is applied and in sync."""

        def is_same() -> bool:
            clusters = [broker.cluster for broker in self.running.values()]
            first = clusters[0]
            return (
                all(set(cluster.live) == set(self.running) for cluster in clusters)
                and all(cluster.states == first.states for cluster in clusters)
                and all(broker.membership.is_idle for broker in self.running.values())
                and all(broker.membership.controller_id > 0 for broker in self.running.values())
            )

        self.wait(is_same)

    def in_sync(self, name: str = "t") -> None:
        """Wait until every live replica is in sync."""

        def are() -> bool:
            cluster = next(iter(self.running.values())).cluster
            return all(
                set(state.in_sync) == set(replicas) & set(self.running)
                for state, replicas in zip(cluster.states[name], cluster.topics[name].replicas, strict=True)
            )

        self.wait(are)
        self.agree()
