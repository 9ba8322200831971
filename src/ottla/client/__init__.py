"""The client, for Ottla and for Apache Kafka: `Admin`, `Producer` and `Reader`.

The names here block. `ottla.client.aio` has the same ones for asyncio: one core, two faces.
"""

from __future__ import annotations

from ottla.client.admin_types import (
    Broker,
    ClusterDescription,
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
from ottla.client.blocking import Admin, Producer, Reader
from ottla.client.cluster import ClientOptions
from ottla.client.delivery import Deliveries, Delivery
from ottla.client.errors import (
    BrokerUnreachable,
    ClientError,
    ConnectionLost,
    DeliveryFailed,
    InvalidRecord,
    MalformedAnswer,
    PartlyFailed,
    RequestTimedOut,
    ServerError,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from ottla.client.metadata import Partition, Topic
from ottla.client.offsets import EARLIEST, LATEST, AtTime, Isolation, Position
from ottla.client.reader import Fetched
from ottla.client.routing import NewRecord, murmur2

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "AtTime",
    "Broker",
    "BrokerUnreachable",
    "ClientError",
    "ClientOptions",
    "ClusterDescription",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigSource",
    "ConnectionLost",
    "CreatedTopic",
    "Deliveries",
    "Delivery",
    "DeliveryFailed",
    "Fetched",
    "InvalidRecord",
    "Isolation",
    "MalformedAnswer",
    "NewRecord",
    "NewTopic",
    "Partition",
    "PartlyFailed",
    "Position",
    "Producer",
    "Reader",
    "RequestTimedOut",
    "Resource",
    "ResourceConfigs",
    "ResourceKind",
    "ServerError",
    "Topic",
    "UnknownTopicOrPartition",
    "UnsupportedByBroker",
    "murmur2",
]
