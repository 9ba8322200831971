"""What an administrator asks for, and what comes back. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from ottla.client.errors import ServerError
from ottla.client.group.offsets import Offset, TopicPartition
from ottla.client.network.address import Address

BROKER_DEFAULT = -1


class NewTopic(NamedTuple):
    """A topic to create. -1 leaves a number to the broker. Numbers and booleans of the configs may be such."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, str | float | bool] = {}


class CreatedTopic(NamedTuple):
    """A topic as it was made; -1 where an old broker does not say."""

    name: str
    topic_id: bytes
    partition_count: int
    replication_factor: int


class Broker(NamedTuple):
    node_id: int
    address: Address
    rack: str | None


class ClusterDescription(NamedTuple):
    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]


class ElectionKind(IntEnum):
    """Who may become the leader of a partition, by Kafka's numbers."""

    PREFERRED = 0  # the first of its replicas, if that is in sync
    UNCLEAN = 1  # any that is alive, where none is in sync: what only the others have is lost


class Reassignment(NamedTuple):
    """A partition on its way to other brokers: all that have it now, those that come, and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ResourceKind(IntEnum):
    """What has a configuration, by Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """The name of a broker is its id, or "" for the defaults of all."""

    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name.lower().replace('_', ' ')} {self.name or '(default)'}"


class ConfigSource(IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


CONFIG_TYPES = ("unknown", "boolean", "string", "int", "short", "long", "double", "list", "class", "password")
"""By Kafka's numbers."""


class ConfigEntry(NamedTuple):
    """One value. A sensitive one is None."""

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: str
    documentation: str | None

    @property
    def is_default(self) -> bool:
        """Whether nobody has set it, neither here nor for all."""
        return self.source is ConfigSource.DEFAULT


class ResourceConfigs(NamedTuple):
    resource: Resource
    entries: tuple[ConfigEntry, ...]


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """A value to set, or to return to its default, or, of a list, elements to add or take away."""

    name: str
    operation: ConfigOperation
    value: str | float | bool | None = None


class GroupListing(NamedTuple):
    """`type` is "classic", "consumer" or, of Apache Kafka, "share" or "streams"; `state` is "" if an old broker
    does not say."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    coordinator_id: int


class GroupMember(NamedTuple):
    """What is not known yet, or is no matter of consumers, is empty. `target` is where the assignment moves to."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    epoch: int | None  # None: of a classic group
    is_classic: bool
    topics: tuple[str, ...]
    topic_regex: str | None
    assignment: frozenset[TopicPartition]
    target: frozenset[TopicPartition]


class GroupDescription(NamedTuple):
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator_id: int
    epoch: int | None  # None: of a classic group
    assignment_epoch: int | None
    members: tuple[GroupMember, ...]


class GroupLag(NamedTuple):
    """How far a group is behind in a partition. None: nothing is committed, or there is no such partition.

    The end is the last stable offset: what is behind it can still be aborted. `records` are those that a consumer
    would really get: no markers, nothing of aborted transactions, nothing that compaction has removed.
    """

    committed: Offset | None
    start_offset: int | None
    end_offset: int | None
    records: int | None

    @property
    def offsets(self) -> int | None:
        """The plain difference, which is more than there are records wherever offsets have none."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(self.end_offset - self.committed.offset, 0)


class LogDirPartition(NamedTuple):
    """A replica in a folder of a broker. A future one is on its way there from another folder."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool


class LogDir(NamedTuple):
    """A folder of a broker; its bytes are -1 where an old broker does not say."""

    path: str
    error: ServerError | None
    total_bytes: int
    usable_bytes: int
    partitions: tuple[LogDirPartition, ...]


class ClientQuota(NamedTuple):
    """An entity, as {"client-id": "billing"}, None for the default; and its quotas by name."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]
