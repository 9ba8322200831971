"""Clients on bare sockets that find the leaders of many partitions, and write to all of them."""

import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from bench.clients_raw import (
    START_SECONDS,
    TOPIC_ALREADY_EXISTS,
    TOPICS_A_REQUEST,
    RawClient,
    Refused,
    produce_request,
)
from bench.cluster_servers import ServerCluster
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

ALL = -1
LOOK_AGAIN_SECONDS = 0.005
REPLICAS = 3
FAILURES = (OSError, Refused)


class Leaders(NamedTuple):
    controller_id: int
    of_topic: dict[str, int]
    """Of partition 0; topics without one are left out."""
    in_sync: int
    """Of the partition that has the fewest."""


def metadata(cluster: ServerCluster, names: Sequence[str], alive: Sequence[int]) -> Leaders:
    """As the first broker that answers knows it."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False
    )
    failure: Exception = Refused("there is no broker")
    for node_id in alive:
        try:
            with RawClient(cluster.members[node_id].address) as client:
                answer: MetadataResponse = client.ask(request)
        except OSError as error:
            failure = error
            continue
        partitions = [(topic.name, partition) for topic in answer.topics for partition in topic.partitions]
        leaders = {name: each.leader_id for name, each in partitions if name and each.partition_index == 0}
        fewest = min((len(each.isr_nodes) for _, each in partitions), default=0)
        return Leaders(answer.controller_id, {name: one for name, one in leaders.items() if one in alive}, fewest)
    raise failure


def create(cluster: ServerCluster, names: Sequence[str], partitions: int = 1) -> None:
    for first in range(0, len(names), TOPICS_A_REQUEST):
        topics = [
            CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=REPLICAS, assignments=[], configs=[]
            )
            for name in names[first : first + TOPICS_A_REQUEST]
        ]
        controller_id = metadata(cluster, [], list(cluster.members)).controller_id
        with RawClient(cluster.members[max(controller_id, 1)].address) as client:
            for topic in client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000)).topics:
                if topic.error_code not in (0, TOPIC_ALREADY_EXISTS):
                    raise Refused(f"creating {topic.name}: error {topic.error_code}, {topic.error_message}")


def write_to_each(cluster: ServerCluster, names: Sequence[str], alive: Sequence[int]) -> None:
    """One record to partition 0 of each topic, acknowledged by all in sync; again to those that do not take it yet."""
    missing = list(names)
    deadline = time.monotonic() + 2 * START_SECONDS
    while missing:
        if time.monotonic() > deadline:
            raise Refused(f"{len(missing)} topics take no record, {missing[0]} among them")
        try:
            missing = _written(cluster, missing, alive)
        except OSError:
            time.sleep(LOOK_AGAIN_SECONDS)


def _written(cluster: ServerCluster, names: Sequence[str], alive: Sequence[int]) -> list[str]:
    """Those that did not take it."""
    by_leader: defaultdict[int, list[str]] = defaultdict(list)
    for name, leader in metadata(cluster, names, alive).of_topic.items():
        by_leader[leader].append(name)
    left = set(names)
    for leader, led in by_leader.items():
        with RawClient(cluster.members[leader].address) as client:
            for first in range(0, len(led), TOPICS_A_REQUEST):
                answer = client.ask(produce_request(led[first : first + TOPICS_A_REQUEST], 100, ALL))
                left -= {
                    topic.name
                    for topic in answer.responses
                    if not any(partition.error_code for partition in topic.partition_responses)
                }
    if left:
        time.sleep(LOOK_AGAIN_SECONDS)
    return sorted(left)


def wait_until_in_sync(cluster: ServerCluster, names: Sequence[str]) -> None:
    """Until all brokers say so of all topics."""
    deadline = time.monotonic() + 2 * START_SECONDS
    for node_id in cluster.members:
        while True:
            try:
                if metadata(cluster, names, [node_id]).in_sync == REPLICAS:
                    break
            except FAILURES:
                pass
            if time.monotonic() > deadline:
                raise Refused(f"{cluster.name}: not all replicas are in sync")
            time.sleep(10 * LOOK_AGAIN_SECONDS)


def start(cluster: ServerCluster, names: Sequence[str] = ()) -> float:
    """Seconds from the start of the processes until each topic takes a write; a first one is created."""
    started = time.monotonic()
    cluster.start()
    while True:
        try:
            create(cluster, ["first"])
            write_to_each(cluster, ["first", *names], list(cluster.members))
        except FAILURES:
            if time.monotonic() > started + 2 * START_SECONDS:
                raise
            time.sleep(LOOK_AGAIN_SECONDS)
        else:
            return time.monotonic() - started


def failover(cluster: ServerCluster, names: Sequence[str]) -> float:
    """Seconds from kill -9 of the leader of the first topic until each takes a write. It is back when this returns."""
    wait_until_in_sync(cluster, names)
    victim = metadata(cluster, names[:1], list(cluster.members)).of_topic[names[0]]
    alive = [node_id for node_id in cluster.members if node_id != victim]
    began = time.monotonic()
    cluster.members[victim].kill()
    write_to_each(cluster, names, alive)
    taken = time.monotonic() - began
    cluster.members[victim].start()
    wait_until_in_sync(cluster, names)
    return taken
