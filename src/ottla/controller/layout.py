"""Where things lie in the store, and their JSON: the layout that Kafka had in ZooKeeper.

What older releases of Kafka left behind can be read; what is written has the last version Kafka wrote.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.controller.steps import InSteps, parts
from ottla.controller.store import Create, Delete, Node, Operation
from ottla.records.growth import Growth, Phase, decode_growths, encode_growths
from ottla.wire.uuids import ZERO_UUID, parse_uuid, uuid_text

BROKER_IDS = "/brokers/ids"
BROKER_EPOCHS = "/brokers/epochs"
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
    BROKER_EPOCHS,
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


NOBODY = -1  # leads

_NONE: Mapping[int, list[int]] = {}


class TopicNode(NamedTuple):
    """A topic as it was decided: its id, and the brokers of each partition, the preferred leader first.

    Where a partition is being reassigned, its replicas hold those that come and those that go, too.
    """

    topic_id: bytes
    replicas: list[list[int]]
    adding: Mapping[int, list[int]] = _NONE  # by the index of the partition
    removing: Mapping[int, list[int]] = _NONE
    growths: tuple[Growth, ...] = ()  # the partitions that were added in order, the first first

    def replicas_of(self, index: int) -> list[int]:
        """Nobody where there is no such partition: it may have been taken back."""
        return self.replicas[index] if index < len(self.replicas) else []

    def is_closed(self, index: int) -> bool:
        """Whether a partition is being added in order, and nobody may lead it yet."""
        growth = self.growths[-1] if self.growths else None
        return growth is not None and growth.phase is not Phase.OPEN and index in growth.new_partitions

    def without(self, first: int) -> TopicNode:
        """The topic before the partitions from an index on were added."""
        growths = tuple(growth for growth in self.growths if growth.total <= first)
        return self._replace(replicas=self.replicas[:first], growths=growths)


class PartitionState(NamedTuple):
    """Who leads a partition (-1: nobody), since when, and who is in sync."""

    leader_id: int
    leader_epoch: int
    in_sync: tuple[int, ...]
    controller_epoch: int = 1
    partition_epoch: int = 0  # grows with every change
    eligible: tuple[int, ...] = ()  # left the in-sync set while it was too small, and so have all that is committed
    last_known: tuple[int, ...] = ()  # was in one of these, and may lack the last records; until two are in sync


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


def broker_epoch_path(node_id: int) -> str:
    """Of the registration with which a broker was last taken in."""
    return f"{BROKER_EPOCHS}/{node_id}"


def broker_config_path(node_id: int | None) -> str:
    """Of one broker, or with None of what all brokers have."""
    return f"{BROKER_CONFIGS}/{DEFAULT_ENTITY if node_id is None else node_id}"


def group_config_path(group_id: str) -> str:
    return f"{GROUP_CONFIGS}/{sanitized(group_id)}"


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
    """As Kafka's. What it has no name for is left out where there is none."""
    fields = {
        "version": 3,
        "topic_id": uuid_text(topic.topic_id),
        "partitions": {str(index): replicas for index, replicas in enumerate(topic.replicas)},
        "adding_replicas": {str(index): replicas for index, replicas in topic.adding.items()},
        "removing_replicas": {str(index): replicas for index, replicas in topic.removing.items()},
    }
    if topic.growths:
        fields["growths"] = encode_growths(topic.growths)
    return _encode(fields)


def decode_topic(data: bytes) -> TopicNode:
    """A topic of before version 3 has no id: the zero id stands for that."""
    fields = _decode(data)
    partitions = fields["partitions"]
    topic_id = parse_uuid(fields["topic_id"]) if "topic_id" in fields else ZERO_UUID
    replicas = [partitions[str(index)] for index in range(len(partitions))]
    adding, removing = (_by_index(fields.get(name)) for name in ("adding_replicas", "removing_replicas"))
    try:
        growths = decode_growths(fields.get("growths", ()))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise CorruptNode(f"it is not told how the topic has grown: {error}") from error
    return TopicNode(topic_id, replicas, adding, removing, growths)


def _by_index(lists: dict[str, list[int]] | None) -> Mapping[int, list[int]]:
    return {int(index): replicas for index, replicas in lists.items()} if lists else _NONE


@functools.lru_cache(maxsize=4096)  # thousands of partitions have equal states
def encode_state(state: PartitionState) -> bytes:
    """As Kafka's. What it has no name for is left out while it is as at the beginning."""
    fields = {
        "version": 1,
        "leader": state.leader_id,
        "leader_epoch": state.leader_epoch,
        "controller_epoch": state.controller_epoch,
        "isr": state.in_sync,
    }
    if state.partition_epoch:
        fields["partition_epoch"] = state.partition_epoch
    if state.eligible:
        fields["eligible"] = state.eligible
    if state.last_known:
        fields["last_known"] = state.last_known
    return _encode(fields)


@functools.lru_cache(maxsize=4096)
def decode_state(data: bytes) -> PartitionState:
    fields = _decode(data)
    return PartitionState(
        fields["leader"],
        fields["leader_epoch"],
        tuple(fields["isr"]),
        fields["controller_epoch"],
        fields.get("partition_epoch", 0),
        tuple(fields.get("eligible", ())),
        tuple(fields.get("last_known", ())),
    )


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


def encode_controller(node_id: int, now_ms: int) -> bytes:
    return _encode({"version": 2, "brokerid": node_id, "timestamp": str(now_ms), "kraftControllerEpoch": -1})


def decode_controller(data: bytes) -> int:
    """The id of the broker that decides."""
    node_id: int = _decode(data)["brokerid"]
    return node_id


def encode_controller_epoch(epoch: int) -> bytes:
    return str(epoch).encode()


def decode_controller_epoch(data: bytes) -> int:
    try:
        return int(data)
    except ValueError as error:
        raise CorruptNode(f"not an epoch: {data[:80]!r}") from error


def encode_broker_epoch(epoch: int) -> bytes:
    return _encode({"version": 1, "epoch": epoch})


def decode_broker_epoch(data: bytes) -> int:
    epoch: int = _decode(data)["epoch"]
    return epoch


def encode_broker(broker: BrokerNode) -> bytes:
    """As Kafka's: without a rack there is none, and an address of IPv6 has brackets."""
    host, port = next(iter(broker.endpoints.values()), (None, -1))
    fields = {
        "version": 5,
        "host": host,
        "port": port,
        "jmx_port": -1,
        "timestamp": str(broker.timestamp_ms),
        "endpoints": [f"{name}://{_bracketed(host)}:{port}" for name, (host, port) in broker.endpoints.items()],
        "listener_security_protocol_map": dict.fromkeys(broker.endpoints, "PLAINTEXT"),
    }
    if broker.rack is not None:
        fields["rack"] = broker.rack
    return _encode({**fields, "features": {}})


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def decode_broker(data: bytes) -> BrokerNode:
    fields = _decode(data)
    endpoints = {}
    for text in fields["endpoints"]:
        name, _, address = text.partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = (host.removeprefix("[").removesuffix("]"), int(port))
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


def first_state(
    replicas: Sequence[int], live: Container[int] | None = None, controller_epoch: int = 1
) -> PartitionState:
    """The state of a partition that begins: the first of its live replicas leads, and all of those are in sync."""
    in_sync = tuple(replicas) if live is None else tuple(replica for replica in replicas if replica in live)
    return PartitionState(in_sync[0], 0, in_sync, controller_epoch)


def first_states(
    replicas: Iterable[Sequence[int]], live: Container[int] | None = None, controller_epoch: int = 1
) -> list[PartitionState]:
    """`live`: the brokers that are there; without it, all are."""
    known: dict[tuple[int, ...], PartitionState] = {}  # there may be thousands of partitions, and few brokers
    states = []
    for brokers in map(tuple, replicas):
        state = known.get(brokers)
        if state is None:
            state = known[brokers] = first_state(brokers, live, controller_epoch)
        states.append(state)
    return states


# Operations


def partition_operations(name: str, first: int, states: Iterable[PartitionState]) -> Iterator[Operation]:
    """The states of new partitions, from the index `first` on."""
    for index, state in enumerate(states, first):
        yield Create(partition_path(name, index))
        yield Create(state_path(name, index), encode_state(state))


def partition_removals(name: str, first: int, end: int) -> Iterator[Operation]:
    for index in range(first, end):
        yield Delete(state_path(name, index))
        yield Delete(partition_path(name, index))


# Reading


def below(nodes: Mapping[str, Node], path: str) -> Iterator[tuple[str, Node]]:
    """Those of the nodes that lie below a path."""
    start = f"{path}/"
    return ((found, node) for found, node in nodes.items() if found.startswith(start))


def read_configs(nodes: Mapping[str, Node], path: str) -> InSteps[dict[str, dict[str, str]]]:
    """The configurations right below a path, by their names as they stand there."""
    start = len(path) + 1
    configs: dict[str, dict[str, str]] = {}
    for part in parts(below(nodes, path)):
        for found, node in part:
            if "/" not in (name := found[start:]) and node.data:
                configs[name] = decode_config(node.data)
        yield
    return configs


class StoredTopic(NamedTuple):
    node: TopicNode
    states: list[PartitionState]


def read_topics_and_states(nodes: Mapping[str, Node]) -> InSteps[dict[str, StoredTopic]]:
    """All topics with the states of their partitions, in one reading."""
    topics: dict[str, TopicNode] = {}
    states: dict[tuple[str, int], PartitionState] = {}
    for part in parts(below(nodes, TOPICS)):
        for path, node in part:
            match path[len(TOPICS) + 1 :].split("/"):
                case [name]:
                    topics[name] = decode_topic(node.data)
                case [name, "partitions", index, "state"]:
                    states[name, int(index)] = decode_state(node.data)
        yield
    try:
        return {
            name: StoredTopic(topic, [states[name, index] for index in range(len(topic.replicas))])
            for name, topic in topics.items()
        }
    except KeyError as error:
        raise CorruptNode(f"a partition has no state: {error}") from error


def prepare_operations(nodes: Mapping[str, Node]) -> list[Operation]:
    """What a new store needs before anything can lie in it."""
    return [Create(path) for path in PERSISTENT if path not in nodes]
