"""Where things lie in the store, and their JSON: the layout that Kafka had in ZooKeeper.

What older releases of Kafka left behind can be read; what is written has the last version Kafka wrote.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.controller.store import Create, Node, NodeMissing, Operation, Set, Store
from ottla.wire.uuids import ZERO_UUID, parse_uuid, uuid_text

BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
TOPIC_CONFIGS = "/config/topics"
BROKER_CONFIGS = "/config/brokers"
GROUP_CONFIGS = "/config/groups"
USER_QUOTAS = "/config/users"
CLIENT_QUOTAS = "/config/clients"
IP_QUOTAS = "/config/ips"
DEFAULT_ENTITY = "<default>"
PERSISTENT = (
    "/brokers",
    BROKER_IDS,
    TOPICS,
    "/cluster",
    "/config",
    TOPIC_CONFIGS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    USER_QUOTAS,
    CLIENT_QUOTAS,
    IP_QUOTAS,
)


class CorruptNode(ValueError):
    """A node does not hold what its path promises."""


class TopicNode(NamedTuple):
    """A topic as it was decided: its id, and the brokers of each partition, the preferred leader first."""

    topic_id: bytes
    replicas: list[list[int]]


class PartitionState(NamedTuple):
    """Who leads a partition (-1: nobody), since when, and who is in sync."""

    leader_id: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    controller_epoch: int = 1


class BrokerNode(NamedTuple):
    """A broker that is there, and where it can be reached."""

    endpoints: dict[str, tuple[str, int]]  # host and port of each listener, by its name
    rack: str | None = None
    timestamp_ms: int = 0


# Paths


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}"


def state_path(topic: str, index: int) -> str:
    return f"{TOPICS}/{topic}/partitions/{index}/state"


def topic_config_path(topic: str) -> str:
    return f"{TOPIC_CONFIGS}/{topic}"


def broker_path(node_id: int) -> str:
    return f"{BROKER_IDS}/{node_id}"


def broker_config_path(node_id: int | None) -> str:
    """Of one broker, or with None of what all brokers have."""
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if node_id is None else node_id}"


def sanitized(name: str | None) -> str:
    """A name that anybody may have chosen, as part of a path; None is the default of all names."""
    if name is None:
        return DEFAULT_ENTITY
    from urllib.parse import quote  # few have such entities, and it is slow to import

    return quote(name, safe="")


def unsanitized(part: str) -> str | None:
    if part == DEFAULT_ENTITY:
        return None
    from urllib.parse import unquote

    return unquote(part)


# Forms


def encode_topic(topic: TopicNode) -> bytes:
    return _encode(
        {
            "version": 3,
            "topic_id": uuid_text(topic.topic_id),
            "partitions": {str(index): replicas for index, replicas in enumerate(topic.replicas)},
            "adding_replicas": {},
            "removing_replicas": {},
        }
    )


def decode_topic(data: bytes) -> TopicNode:
    """A topic of before version 3 has no id: the zero id stands for that."""
    fields = _decode(data)
    partitions = fields["partitions"]
    topic_id = parse_uuid(fields["topic_id"]) if "topic_id" in fields else ZERO_UUID
    return TopicNode(topic_id, [partitions[str(index)] for index in range(len(partitions))])


@functools.lru_cache(maxsize=4096)  # thousands of partitions have equal states
def encode_state(state: PartitionState) -> bytes:
    return _encode(
        {
            "version": 1,
            "leader": state.leader_id,
            "leader_epoch": state.leader_epoch,
            "controller_epoch": state.controller_epoch,
            "isr": state.in_sync,
        }
    )


@functools.lru_cache(maxsize=4096)
def decode_state(data: bytes) -> PartitionState:
    fields = _decode(data)
    return PartitionState(fields["leader"], fields["leader_epoch"], tuple(fields["isr"]), fields["controller_epoch"])


def encode_config(texts: Mapping[str, str]) -> bytes:
    return _encode({"version": 1, "config": dict(texts)})


def decode_config(data: bytes) -> dict[str, str]:
    config: dict[str, str] = _decode(data)["config"]
    return config


def encode_cluster_id(cluster_id: str) -> bytes:
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    cluster_id: str = _decode(data)["id"]
    return cluster_id


def encode_producer_id_block(node_id: int, block: range) -> bytes:
    return _encode({"version": 1, "broker": node_id, "block_start": str(block[0]), "block_end": str(block[-1])})


def decode_producer_id_block(data: bytes) -> range:
    fields = _decode(data)
    return range(int(fields["block_start"]), int(fields["block_end"]) + 1)


def encode_broker(broker: BrokerNode) -> bytes:
    host, port = next(iter(broker.endpoints.values()))
    return _encode(
        {
            "version": 5,
            "host": host,
            "port": port,
            "jmx_port": -1,
            "timestamp": str(broker.timestamp_ms),
            "endpoints": [f"{name}://{host}:{port}" for name, (host, port) in broker.endpoints.items()],
            "listener_security_protocol_map": dict.fromkeys(broker.endpoints, "PLAINTEXT"),
            "rack": broker.rack,
            "features": {},
        }
    )


def decode_broker(data: bytes) -> BrokerNode:
    fields = _decode(data)
    endpoints = {}
    for text in fields["endpoints"]:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = (host, int(port))
    return BrokerNode(endpoints, fields.get("rack"), int(fields["timestamp"]))


_JSON = json.JSONEncoder(separators=(",", ":"))  # `json.dumps` would make one for each node


def _encode(fields: dict[str, Any]) -> bytes:
    return _JSON.encode(fields).encode()


def _decode(data: bytes) -> _Fields:
    try:
        return _Fields(json.loads(data))
    except (ValueError, TypeError) as error:
        raise CorruptNode(f"not a JSON object: {data[:80]!r}") from error


class _Fields(dict[str, Any]):
    def __missing__(self, name: str) -> Any:
        raise CorruptNode(f"{name!r} is missing")


def first_state(replicas: Sequence[int]) -> PartitionState:
    """The state of a partition that begins: its preferred leader leads, and all are in sync."""
    return PartitionState(replicas[0], 0, tuple(replicas))


# Operations


def topic_operations(name: str, topic: TopicNode, overrides: Mapping[str, str]) -> Iterator[Operation]:
    """Bring a topic into being: its configuration first, so that nobody sees it without."""
    yield Create(topic_config_path(name), encode_config(overrides))
    yield Create(topic_path(name), encode_topic(topic))
    yield Create(partitions_path(name))
    yield from partition_operations(name, 0, topic.replicas)


def partition_operations(name: str, first: int, replicas: Sequence[list[int]]) -> Iterator[Operation]:
    """The states of new partitions, from the index `first` on."""
    for index, brokers in enumerate(replicas, first):
        yield Create(partition_path(name, index))
        yield Create(state_path(name, index), encode_state(first_state(brokers)))


def write_config(store: Store, path: str, texts: Mapping[str, str]) -> Operation:
    """Put a configuration in the place of the one that is there, if one is."""
    data = encode_config(texts)
    return Create(path, data) if find(store, path) is None else Set(path, data)


def find(store: Store, path: str) -> Node | None:
    try:
        return store.get(path)
    except NodeMissing:
        return None


def read_configs(store: Store, path: str) -> dict[str, dict[str, str]]:
    """The configurations right below a path, by their names as they stand there."""
    start = len(path) + 1
    return {
        name: decode_config(node.data)
        for found, node in store.tree(path).items()
        if "/" not in (name := found[start:]) and node.data
    }


class StoredTopic(NamedTuple):
    node: TopicNode
    states: list[PartitionState]


def read_topics_and_states(store: Store) -> dict[str, StoredTopic]:
    """All topics with the states of their partitions, in one reading."""
    nodes: dict[str, TopicNode] = {}
    states: dict[tuple[str, int], PartitionState] = {}
    for path, node in store.tree(TOPICS).items():
        match path[len(TOPICS) + 1 :].split("/"):
            case [name]:
                nodes[name] = decode_topic(node.data)
            case [name, "partitions", index, "state"]:
                states[name, int(index)] = decode_state(node.data)
    try:
        return {
            name: StoredTopic(topic, [states[name, index] for index in range(len(topic.replicas))])
            for name, topic in nodes.items()
        }
    except KeyError as error:
        raise CorruptNode(f"a partition has no state: {error}") from error


def prepare_operations(store: Store) -> list[Operation]:
    """What a new store needs before anything can lie in it."""
    return [Create(path) for path in PERSISTENT if find(store, path) is None]
