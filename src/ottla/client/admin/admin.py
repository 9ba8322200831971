"""Topics and configurations; other files have the rest of what an administrator does.

Ask for one thing and its error is raised; ask for several and PartlyFailed has the errors and what was done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, Self, TypeVar

from ottla.client.admin.groups import GroupAdmin
from ottla.client.admin.growth import GrowthAdmin
from ottla.client.admin.quotas import QuotaAdmin
from ottla.client.admin.records import RecordAdmin
from ottla.client.admin.transactions import TransactionAdmin
from ottla.client.admin.types import (
    CONFIG_TYPES,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    CreatedTopic,
    NewTopic,
    Resource,
    ResourceConfigs,
    ResourceKind,
)
from ottla.client.checks import check_count, checked_names, checked_partitions, checked_rows, config_text
from ottla.client.errors import ServerError, all_or_error
from ottla.client.network.cluster import ClientOptions, Cluster
from ottla.client.network.metadata import Topic
from ottla.client.offsets import Isolation, Position, find_offsets
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from ottla.wire.schema import Request, Response
from ottla.wire.uuids import ZERO_UUID


class _HasErrorCode(Protocol):
    error_code: int


R = TypeVar("R", bound=Response)


class Admin(GrowthAdmin, GroupAdmin, TransactionAdmin, RecordAdmin, QuotaAdmin):
    """All that an administrator asks of a cluster. A context manager, or `open` and `close`.

    `bootstrap`: "host:port,host:port", or a list of them.

    What only reads is tried again as long as that may help, `options.retry_timeout_ms` at most. What changes something
    is asked for once: after a lost answer nobody knows whether it was done, and only the caller knows
    whether to ask again.
    """

    def __init__(
        self, bootstrap: str | Sequence[str], options: ClientOptions = ClientOptions()  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        self._cluster = Cluster(bootstrap, options)

    async def open(self, timeout_seconds: float | None = None) -> Self:
        """Connects. TimeoutError if that takes longer. `async with` does the same, and closes in the end."""
        async with asyncio.timeout(timeout_seconds):
            await self._cluster.open()
        return self

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """May be called again."""
        await self._cluster.close()

    # Topics.

    async def create_topics(self, topics: Iterable[NewTopic], *, validate_only: bool = False) -> list[CreatedTopic]:
        """What was made of each, or what stood in the way of some: `PartlyFailed`. `validate_only` makes nothing."""
        asked = [
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partition_count,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    CreatableTopicConfig(name=name, value=config_text(name, value))
                    for name, value in topic.configs.items()
                ],
            )
            for topic in _checked_topics(topics)
        ]
        request = CreateTopicsRequest(topics=asked, timeout_ms=self._timeout_ms, validate_only=validate_only)
        answer = await self._ask_controller(request, CreateTopicsResponse, lambda answer: _codes(answer.topics))
        errors, done = [], []
        for row in answer.topics:
            if row.error_code:
                errors.append(ServerError(row.error_code, row.error_message, topic=row.name))
            else:
                done.append(CreatedTopic(row.name, row.topic_id, row.num_partitions, row.replication_factor))
        return all_or_error(errors, done)

    async def list_topics(self) -> list[Topic]:
        """Every topic that can be described, the internal ones too, by name."""
        metadata = await self._cluster.retry(lambda: self._cluster.refresh(None))
        found = (topic for topic in metadata.topics.values() if isinstance(topic, Topic))
        return sorted(found, key=lambda topic: topic.name)

    async def describe_topics(self, names: Sequence[str]) -> list[Topic]:
        """In the order of the names."""
        names = checked_names(names, "names")
        metadata = await self._cluster.retry(lambda: self._cluster.refresh(names))
        found = [
            metadata.topics.get(name, ServerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic=name)) for name in names
        ]
        errors = [topic for topic in found if isinstance(topic, ServerError)]
        return all_or_error(errors, [topic for topic in found if isinstance(topic, Topic)])

    async def delete_topics(self, names: Sequence[str]) -> list[str]:
        """With all that is in them. The names of those that are deleted; `PartlyFailed` where some could not be."""
        names = checked_names(names, "names")
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name, topic_id=ZERO_UUID) for name in names],
            topic_names=list(names),
            timeout_ms=self._timeout_ms,
        )
        answer = await self._ask_controller(request, DeleteTopicsResponse, lambda answer: _codes(answer.responses))
        for name in names:
            self._cluster.forget(name)
        rows = [(row.name or "", row.error_code, row.error_message) for row in answer.responses]
        return _names_or_error(rows)

    async def expand_topics(self, partition_counts: Mapping[str, int], *, validate_only: bool = False) -> list[str]:
        """Give topics more partitions: a number each, of all that it shall have."""
        for name, count in partition_counts.items():
            check_count(f"the number of partitions of {name}", count)
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsTopic(name=name, count=count, assignments=None)
                for name, count in partition_counts.items()
            ],
            timeout_ms=self._timeout_ms,
            validate_only=validate_only,
        )
        answer = await self._ask_controller(request, CreatePartitionsResponse, lambda answer: _codes(answer.results))
        for name in partition_counts:
            self._cluster.forget(name)
        return _names_or_error([(row.name, row.error_code, row.error_message) for row in answer.results])

    async def find_offsets(
        self, topic: str, position: Position, partitions: Iterable[int] | None = None,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
    ) -> dict[int, int]:  # fmt: skip
        """The offsets of a position by partition, of all partitions if none are named."""
        if partitions is None:
            partitions = range(len((await self._cluster.topic(topic)).partitions))
        return await find_offsets(self._cluster, topic, checked_partitions(partitions), position, isolation)

    # Configurations.

    async def describe_configs(
        self, resources: Iterable[Resource], names: Sequence[str] | None = None, *, with_documentation: bool = False
    ) -> list[ResourceConfigs]:
        """The values of all names, or of some."""
        errors: list[ServerError] = []
        done: list[ResourceConfigs] = []
        keys = None if names is None else checked_names(names, "names")
        for resource in checked_rows(resources, Resource, "resources"):
            asked = DescribeConfigsResource(
                resource_type=resource.kind,
                resource_name=resource.name,
                configuration_keys=keys,
            )
            request = DescribeConfigsRequest(resources=[asked], include_documentation=with_documentation)
            answer = await self._cluster.retry(
                lambda: self._ask_owner(resource, request, DescribeConfigsResponse)  # noqa: B023 - awaited at once
            )
            for row in answer.results:
                if row.error_code:
                    errors.append(_resource_error(resource, row.error_code, row.error_message))
                else:
                    done.append(ResourceConfigs(resource, tuple(map(_config_entry, row.configs))))
        return all_or_error(errors, done)

    async def alter_configs(
        self, resource: Resource, changes: Iterable[ConfigChange], *, validate_only: bool = False
    ) -> None:
        """All of the changes, or none where one is refused. What is not named stays as it is."""
        configs = [
            AlterableConfig(
                name=change.name,
                config_operation=ConfigOperation(change.operation),
                value=config_text(change.name, change.value),
            )
            for change in checked_rows(changes, ConfigChange, "changes")
        ]
        altered = AlterConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[altered], validate_only=validate_only)
        answer = await self._ask_owner(resource, request, IncrementalAlterConfigsResponse)
        for row in answer.responses:
            if row.error_code:
                raise _resource_error(resource, row.error_code, row.error_message)

    async def _ask_owner(self, resource: Resource, request: Request, answer: type[R]) -> R:
        """A broker's own configuration is asked of that broker, all else of any."""
        owned = (ResourceKind.BROKER, ResourceKind.BROKER_LOGGER)
        if resource.kind in owned and resource.name.isdecimal():
            await self._cluster.refresh([])
            return await self._cluster.ask(int(resource.name), request, answer)
        return await self._cluster.ask_any(request, answer)


def _checked_topics(given: Iterable[NewTopic]) -> list[NewTopic]:
    topics = checked_rows(given, NewTopic, "topics")
    for topic in topics:
        checked_names([topic.name], "names")
        check_count("partition_count", topic.partition_count)
        check_count("replication_factor", topic.replication_factor)
        if not isinstance(topic.configs, Mapping):
            raise TypeError(f"configs are a dict by name, not {topic.configs!r}")
    return topics


def _codes(rows: Iterable[_HasErrorCode]) -> set[int]:
    return {row.error_code for row in rows}


def _names_or_error(rows: Iterable[tuple[str, int, str | None]]) -> list[str]:
    errors = [ServerError(code, message, topic=name) for name, code, message in rows if code]
    return all_or_error(errors, [name for name, code, _ in rows if not code])


def _resource_error(resource: Resource, code: int, message: str | None) -> ServerError:
    topic = resource.name if resource.kind is ResourceKind.TOPIC else None
    return ServerError(code, message, about=str(resource), topic=topic)


def _config_entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    known = 0 <= row.config_type < len(CONFIG_TYPES)
    return ConfigEntry(
        row.name,
        row.value,
        ConfigSource(row.config_source),
        row.read_only,
        row.is_sensitive,
        CONFIG_TYPES[row.config_type] if known else CONFIG_TYPES[0],
        row.documentation,
    )
