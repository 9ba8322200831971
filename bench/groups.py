"""Groups and committed offsets, beside Apache Kafka: commits, a thousand groups at once, one large group."""

import time

from bench import clients_consumer_groups as consumer_clients
from bench import clients_groups as group_clients
from bench import clients_raw as raw
from bench.broker import MEGABYTE, QUICK, WAYS, Amounts, Bench, Samples, kinds_to_compare
from bench.broker_figures import Comparison, format_comparisons
from bench.broker_servers import Server, servers
from ottla.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

GROUPS = 1_000
MEMBERS, PARTITIONS = 50, 500
FULL = Amounts(5, 1, {"1 KB": MEGABYTE}, 2.0, 0, 0)

format_results = format_comparisons


class GroupBench(Bench):
    def measure(self) -> None:
        amounts = self.amounts
        with servers(self.kinds) as running:
            for server in running:
                raw.start_to_first_record(server)
                group_clients.await_coordinator(server, "first")
                commits(server, "16 in flight", amounts.seconds)
            for way in WAYS:
                self.take(
                    f"commits, {way}",
                    lambda server, way=way: commits(server, way, amounts.seconds),  # type: ignore[misc]
                    running,
                    amounts.rounds,
                )
            self.take("many groups", lambda server: many_groups(server, amounts.seconds), running, amounts.rounds)
            self.take("one large group", large_group, running, amounts.rounds)
            self.take(
                "one large group, new protocol",
                lambda server: large_consumer_group(server, amounts.seconds),
                running,
                amounts.rounds,
            )


def run(quick: bool) -> list[Comparison]:
    return GroupBench(kinds_to_compare(), QUICK if quick else FULL).run()


def commits(server: Server, way: str, seconds: float) -> Samples:
    """Of one partition, by nobody in particular."""
    connections, in_flight = WAYS[way]
    request = group_clients.commit_request(f"commits-{time.time_ns()}", "first")
    cpu = server.cpu_seconds()
    rate = raw.pipelined(
        server, request, group_clients.check_commit, connections=connections, in_flight=in_flight, seconds=seconds
    )
    cpu_us = (server.cpu_seconds() - cpu) / (rate * seconds) * 1e6
    return {f"commits, {way}": rate, f"CPU of a commit, {way}": cpu_us}


def many_groups(server: Server, seconds: float) -> Samples:
    """Of one member each, on a connection of its own."""
    started_ns = time.time_ns()
    members = [group_clients.GroupMember(server, f"many-{started_ns}-{number}", "first") for number in range(GROUPS)]
    try:
        cpu = server.cpu_seconds()
        taken = group_clients.settle(members, 1)
        joining = server.cpu_seconds() - cpu
        rate = group_clients.commits_of_all(members, seconds)
        committing = server.cpu_seconds() - cpu - joining
    finally:
        for member in members:
            member.close()
    return {
        f"{GROUPS:,} groups from join to assignment": taken,
        f"commits of {GROUPS:,} groups": rate,
        f"CPU of a group's joining, {GROUPS:,} groups": joining / GROUPS * 1e6,
        f"CPU of a commit, {GROUPS:,} groups": committing / (rate * seconds) * 1e6,
    }


def wide_topic(server: Server) -> str:
    topic = f"wide-{time.time_ns()}"
    with raw.RawClient(server.address) as client:
        wide = CreatableTopic(name=topic, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
        client.ask(CreateTopicsRequest(topics=[wide]))
    return topic


def large_group(server: Server) -> Samples:
    """All members are there and join anew, as they do when one has come or gone."""
    topic = wide_topic(server)
    members = [group_clients.GroupMember(server, topic, topic) for _ in range(MEMBERS)]
    try:
        group_clients.settle(members, PARTITIONS)
        taken = group_clients.settle(members, PARTITIONS)
    finally:
        for member in members:
            member.close()
        with raw.RawClient(server.address) as client:
            raw.delete_topic(client, topic)
    return {f"rebalance of {MEMBERS} members, {PARTITIONS} partitions": taken * 1_000}


def large_consumer_group(server: Server, seconds: float) -> Samples:
    """All members join at once, and walk to their shares as fast as they are told; then one gives signs of life."""
    topic = wide_topic(server)
    with raw.RawClient(server.address) as client:
        consumer_clients.assign_at_once(client, topic)
    members = [consumer_clients.ConsumerMember(server, topic, topic) for _ in range(MEMBERS)]
    try:
        consumer_clients.settle(members, PARTITIONS)  # the first time, the topic is new, too
        for member in members:
            member.leave()
        taken = consumer_clients.settle(members, PARTITIONS)
        heartbeats = raw.pipelined(
            server,
            members[0].heartbeat_request(),
            consumer_clients.check_heartbeat,
            connections=1,
            in_flight=16,
            seconds=seconds,
        )
    finally:
        for member in members:
            member.close()
        with raw.RawClient(server.address) as client:
            raw.delete_topic(client, topic)
    return {
        f"rebalance of {MEMBERS} members, {PARTITIONS} partitions, new protocol": taken * 1_000,
        "heartbeats of the new protocol, 16 in flight": heartbeats,
    }
