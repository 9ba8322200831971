"""A broker that runs in a simulation, and short ways to ask it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.loop.loop import Loop
from ottla.controller.local_store import LocalStore
from ottla.controller.memory_nodes import MemoryNodes, MemoryTree
from ottla.records.build import build_batch
from ottla.records.read import read_records
from ottla.testing.files import SimulatedFiles
from ottla.testing.simulated_client import SimulatedClient
from ottla.testing.simulated_system import SimulatedSystem
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)

PRODUCE_VERSION, FETCH_VERSION = 12, 12  # the last that name topics
STORES: dict[Path, MemoryTree] = {}  # by the data folders of their brokers, for those that start again


class SimulatedBroker:
    """The store, the logs, the network and the time are simulated."""

    def __init__(
        self, folder: Path, seed: int = 0, *, syncs: bool = False, files: SimulatedFiles | None = None, **settings: str
    ) -> None:
        """`files`: those that another one has left."""
        self.system = SimulatedSystem(seed)
        self.loop = Loop(self.system)
        self.files = _files_with(folder) if files is None else files
        texts = {"listeners": "PLAINTEXT://127.0.0.1:0"} | {
            name.replace("_", "."): text for name, text in settings.items()
        }
        self.store = STORES.setdefault(folder, MemoryTree())
        self.broker = Broker(
            self.loop, self.files, str(folder), BrokerSettings(texts), syncs=syncs, open_store=self._open_store
        )
        self.broker.start()

    def _open_store(self, loop: Loop) -> LocalStore:
        return LocalStore(lambda: MemoryNodes(self.store), loop.make_worker("store"))

    def stop(self) -> None:
        self.broker.stop()
        self.loop.close()

    def abandon(self) -> None:
        """Leave everything as it lies, as a process that is killed does; `files` may lose something more."""
        self.system.kill()
        self.broker.crash()
        self.files.kill()

    def client(self, client_id: str = "simulated") -> SimulatedClient:
        return SimulatedClient(self.system, self.loop, self.broker.address.port, client_id)

    def advance(self, seconds: float) -> None:
        self.system.advance(self.loop, seconds)

    def create(self, name: str, partitions: int = 1) -> None:
        asked = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
        answer = self.client().ask(CreateTopicsRequest(topics=[asked]))
        assert answer.topics[0].error_code == 0

    def produce_request(self, topic: str, values: Sequence[bytes], *, partition: int = 0) -> ProduceRequest:
        batch = build_batch(values, timestamp=self.system.clock_ms())
        data = [PartitionProduceData(index=partition, records=batch)]
        return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=data)])

    def produce(self, client: SimulatedClient, topic: str, *values: bytes) -> PartitionProduceResponse:
        answer = client.ask(self.produce_request(topic, values), PRODUCE_VERSION)
        return cast(PartitionProduceResponse, answer.responses[0].partition_responses[0])


def _files_with(folder: Path) -> SimulatedFiles:
    """Files in which the data folder is there for good, as an administrator makes it."""
    files = SimulatedFiles()
    files.make_folder(str(folder))
    for parent in folder.parents:
        files.sync_folder(str(parent))
    return files


def fetch_request(
    topic: str, offset: int, *, partition: int = 0, wait_ms: int = 500, min_bytes: int = 1
) -> FetchRequest:
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=min_bytes, topics=[FetchTopic(topic=topic, partitions=[wanted])])


def fetched_values(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in read_records(cast(bytes, data.records))]
