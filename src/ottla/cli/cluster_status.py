"""What `ottla cluster status` tells."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences
from ottla.cli.errors import FAILED
from ottla.cli.table import counted, table
from ottla.client import Admin, ClientError, Topic

LOOK_AGAIN_SECONDS = 0.2
MOST_SHOWN = 20  # partitions of one kind, where a person reads


def status(options: argparse.Namespace) -> int:
    deadline = time.monotonic() + (options.wait or 0)
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        while True:
            row = _row(admin)
            is_well = not (row["offline"] or row["under_replicated"] or row["controller"] == -1)
            if is_well or time.monotonic() >= deadline:
                break
            time.sleep(LOOK_AGAIN_SECONDS)
    if options.json:
        print(json.dumps(row))
    else:
        _print(row)
    return FAILED if options.wait and not is_well else 0


def _row(admin: Admin) -> dict[str, Any]:
    cluster = admin.describe_cluster()
    topics = admin.list_topics()
    partitions = [(topic, partition) for topic in topics for partition in topic.partitions]
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller_id,
        "brokers": [
            {
                "id": broker.node_id,
                "address": str(broker.address),
                "rack": broker.rack,
                "leads": sum(partition.leader_id == broker.node_id for _, partition in partitions),
                "replicas": sum(broker.node_id in partition.replicas for _, partition in partitions),
            }
            for broker in cluster.brokers
        ],
        "topics": len(topics),
        "partitions": len(partitions),
        "offline": [_place(topic, each.index) for topic, each in partitions if each.leader_id == -1],
        "under_replicated": [
            {"partition": _place(topic, each.index), "missing": sorted({*each.replicas} - {*each.in_sync_replicas})}
            for topic, each in partitions
            if len(each.in_sync_replicas) < len(each.replicas)
        ],
        "moving": _moving(admin),
    }


def _moving(admin: Admin) -> list[str] | None:
    """None where a broker does not tell."""
    try:
        return sorted(f"{place.topic}-{place.partition}" for place in admin.list_partition_reassignments())
    except ClientError:
        return None


def _place(topic: Topic, index: int) -> str:
    return f"{topic.name}-{index}"


def _print(row: dict[str, Any]) -> None:
    print(f"cluster {row['cluster_id']}  {counted(row['topics'], 'topic')}  {counted(row['partitions'], 'partition')}")
    rows = [
        [each["id"], each["address"], each["rack"], each["leads"], each["replicas"], _role(row, each)]
        for each in row["brokers"]
    ]
    for line in table(["broker", "address", "rack", "leads", "replicas", ""], rows):
        print(f"  {line}")
    if row["controller"] == -1:
        print("no broker is the controller")
    _print_places("without a leader", row["offline"])
    lacking = [f"{each['partition']} (not {', '.join(map(str, each['missing']))})" for each in row["under_replicated"]]
    _print_places("not in sync everywhere", lacking)
    _print_places("on their way to other brokers", row["moving"] or [])
    if not (row["offline"] or row["under_replicated"]):
        print("every replica is in sync")


def _role(row: dict[str, Any], broker: dict[str, Any]) -> str:
    return "controller" if broker["id"] == row["controller"] else ""


def _print_places(what: str, places: list[str]) -> None:
    if places:
        shown = ", ".join(places[:MOST_SHOWN])
        more = f", and {len(places) - MOST_SHOWN:,} more" if len(places) > MOST_SHOWN else ""
        print(f"{counted(len(places), 'partition')} {what}: {shown}{more}")
