"""A broker on loopback that answers as a test says."""

import asyncio
import struct
from collections.abc import Callable
from typing import Self, cast

from ottla.client.loop_thread import LoopThread
from ottla.client.network.address import Address
from ottla.wire.apis import API_VERSIONS, APIS, INIT_PRODUCER_ID, METADATA, Api
from ottla.wire.frames import decode_request, encode_response
from ottla.wire.header import RequestHeader
from ottla.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.schema import Request, Response

TOPIC = "orders"
TOPIC_ID = bytes(range(16))
CLOSE = b"close"
SILENCE = b""
Answer = Callable[[RequestHeader, Request], Response | bytes]
"""A response, or the bytes of a whole frame, or CLOSE, or SILENCE."""


def versions(_: RequestHeader, __: Request) -> ApiVersionsResponse:
    rows = [ApiVersion(api_key=api.key, min_version=api.least, max_version=api.highest) for api in APIS]
    return ApiVersionsResponse(error_code=0, api_keys=rows)


def producer_id(_: RequestHeader, __: Request) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=0)


class ScriptedBroker:
    """It is node 1, and leads all partitions of TOPIC, as long as no other answer to Metadata is given."""

    def __init__(self, answers: dict[Api, Answer] | None = None, *, partition_count: int = 1) -> None:
        self.answers: dict[Api, Answer] = {
            API_VERSIONS: versions,
            METADATA: self.metadata,
            INIT_PRODUCER_ID: producer_id,
        } | (answers or {})
        self.partition_count = partition_count
        self.leaders: dict[int, int] = {}
        self.other_brokers: dict[int, Address] = {}
        self.requests: list[tuple[RequestHeader, Request]] = []
        self.address = Address("127.0.0.1", 0)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def bootstrap(self) -> str:
        return str(self.address)

    def asked(self, api: Api) -> list[Request]:
        return [request for header, request in self.requests if header.api is api]

    def metadata(self, _: RequestHeader, request: Request) -> MetadataResponse:
        asked = cast(MetadataRequest, request).topics
        names = [TOPIC] if asked is None else [topic.name for topic in asked]
        brokers = {1: self.address} | self.other_brokers
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host=host, port=port)
                for node_id, (host, port) in brokers.items()
            ],
            cluster_id="scripted",
            controller_id=1,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str | None) -> MetadataResponseTopic:
        if name != TOPIC:
            return MetadataResponseTopic(error_code=3, name=name, partitions=[])
        partitions = [
            MetadataResponsePartition(
                error_code=0,
                partition_index=index,
                leader_id=self.leaders.get(index, 1),
                leader_epoch=0,
                replica_nodes=[1],
                isr_nodes=[1],
            )
            for index in range(self.partition_count)
        ]
        return MetadataResponseTopic(error_code=0, name=name, topic_id=TOPIC_ID, partitions=partitions)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = Address(*self._server.sockets[0].getsockname()[:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                (size_bytes,) = struct.unpack(">i", await reader.readexactly(4))
                header, request = decode_request(await reader.readexactly(size_bytes))
                self.requests.append((header, request))
                answer = self.answers[header.api](header, request)
                if answer is CLOSE:
                    break
                if isinstance(answer, Response):
                    answer = b"".join(cast(list[bytes], encode_response(header.correlation_id, answer, header.version)))
                writer.write(answer)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


class ScriptedBrokerThread:
    """The same in a thread of its own, for tests that block."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self._broker = broker
        self._thread = LoopThread()

    def __enter__(self) -> ScriptedBroker:
        return self._thread.run(self._broker.__aenter__)

    def __exit__(self, *_: object) -> None:
        self._thread.run(self._broker.__aexit__)
        self._thread.close()


def frame(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content
