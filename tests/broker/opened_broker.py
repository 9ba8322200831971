"""A broker with its data open and no network, for tests of handlers."""

from pathlib import Path
from types import GeneratorType, SimpleNamespace
from typing import Any, cast

from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.dispatch import Context
from ottla.broker.handlers import create_topics, metadata
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import run_to_end
from ottla.broker.network.acquaintance import Acquaintance
from ottla.broker.network.listeners import Endpoint
from ottla.log.files import DiskFiles
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.wire.schema import Request


class OpenBroker:
    """A broker with its data open and no network, and what stops and starts it."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.settings = {name.replace("_", "."): text for name, text in settings.items()}
        self._crashed: list[Broker] = []
        self.start()

    def start(self) -> None:
        self.loop = Loop()
        self.broker = Broker(self.loop, DiskFiles(), str(self.folder), BrokerSettings(self.settings))
        self.broker.open()
        self.broker.frontend.endpoints["PLAINTEXT"] = Endpoint("here", 9092)

    def stop(self) -> None:
        self.broker.stop()
        self.loop.close()

    def crash(self) -> None:
        self.broker.crash()
        self.loop.close()
        self._crashed.append(self.broker)  # or the collector would close its generators: who is killed ends nothing

    def ask(self, module: Any, request: Request, version: int | None = None) -> Any:
        """The answer, after it went over the wire and back."""
        version = request.api.highest if version is None else version
        connection = SimpleNamespace(acquaintance=Acquaintance())
        context = cast(
            Context,
            SimpleNamespace(
                version=version, client_id="test", listener="PLAINTEXT", origin=None, connection=connection
            ),
        )
        response = module.handle(self.broker, request, context)
        if isinstance(response, GeneratorType):
            response = run_to_end(self.loop, response)
        [part] = response.writers[version](response)
        return type(response).readers[version](part, 0)[0]

    def create(
        self, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
    ) -> list[CreatableTopicResult]:
        request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
        return cast(list[CreatableTopicResult], self.ask(create_topics, request, version).topics)

    def metadata(self, *topics: MetadataRequestTopic, version: int = 13, creates: bool = False) -> MetadataResponse:
        request = MetadataRequest(topics=list(topics), allow_auto_topic_creation=creates or version < 4)
        return cast(MetadataResponse, self.ask(metadata, request, version))


def topic(name: str, count: int = 1, **configs: str) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=count,
        replication_factor=-1,
        assignments=[],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )
