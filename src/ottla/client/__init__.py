"""The client, for Ottla and for Apache Kafka: `Producer`, `Consumer`, `Reader` and `Admin`.

The names here block. `ottla.client.aio` has the same ones for asyncio: one core, two faces.

What happens to it is logged as `ottla.client`: outages, rebalances and moves at info, what needs somebody at warning.
"""

from __future__ import annotations

from ottla.client.admin.types import (
    Broker,
    ClientQuota,
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigSource,
    CreatedTopic,
    ElectionKind,
    GroupDescription,
    GroupLag,
    GroupListing,
    GroupMember,
    LogDir,
    LogDirPartition,
    NewTopic,
    Reassignment,
    Resource,
    ResourceConfigs,
    ResourceKind,
)
from ottla.client.blocking import Admin, BatchReader, Producer, Reader, Transaction
from ottla.client.consumer.blocking import Consumer
from ottla.client.consumer.fetched_data import Fetched, FetchedData
from ottla.client.errors import (
    BrokerUnreachable,
    BufferFull,
    ClientError,
    CommitFailed,
    ConnectionLost,
    DamagedBatch,
    DeliveryFailed,
    DeliveryTimedOut,
    DeserializationFailed,
    InvalidRecord,
    LogTruncated,
    MalformedAnswer,
    OffsetMissing,
    PartlyFailed,
    ProducerClosed,
    ProducerFenced,
    RequestTimedOut,
    ServerError,
    TopicRecreated,
    TransactionAborted,
    TransactionUnresolved,
    UnknownTopicOrPartition,
    UnsupportedByBroker,
)
from ottla.client.group.offsets import GroupOffsets, Membership, Offset, TopicPartition
from ottla.client.message import Message
from ottla.client.network.cluster import ClientOptions
from ottla.client.network.metadata import Partition, Topic
from ottla.client.offsets import EARLIEST, LATEST, AtTime, Isolation, Position
from ottla.client.producer.delivery import Deliveries, Delivery
from ottla.client.producer.routing import NewRecord
from ottla.client.producer.sent import Sent
from ottla.client.producer.statistics import ProducerStatistics

__all__ = [
    "EARLIEST",
    "LATEST",
    "Admin",
    "AtTime",
    "BatchReader",
    "Broker",
    "BrokerUnreachable",
    "BufferFull",
    "ClientError",
    "ClientOptions",
    "ClientQuota",
    "ClusterDescription",
    "CommitFailed",
    "ConfigChange",
    "ConfigEntry",
    "ConfigOperation",
    "ConfigSource",
    "ConnectionLost",
    "Consumer",
    "CreatedTopic",
    "DamagedBatch",
    "Deliveries",
    "Delivery",
    "DeliveryFailed",
    "DeliveryTimedOut",
    "DeserializationFailed",
    "ElectionKind",
    "Fetched",
    "FetchedData",
    "GroupDescription",
    "GroupLag",
    "GroupListing",
    "GroupMember",
    "GroupOffsets",
    "InvalidRecord",
    "Isolation",
    "LogDir",
    "LogDirPartition",
    "LogTruncated",
    "MalformedAnswer",
    "Membership",
    "Message",
    "NewRecord",
    "NewTopic",
    "Offset",
    "OffsetMissing",
    "Partition",
    "PartlyFailed",
    "Position",
    "Producer",
    "ProducerClosed",
    "ProducerFenced",
    "ProducerStatistics",
    "Reader",
    "Reassignment",
    "RequestTimedOut",
    "Resource",
    "ResourceConfigs",
    "ResourceKind",
    "Sent",
    "ServerError",
    "Topic",
    "TopicPartition",
    "TopicRecreated",
    "Transaction",
    "TransactionAborted",
    "TransactionUnresolved",
    "UnknownTopicOrPartition",
    "UnsupportedByBroker",
]
