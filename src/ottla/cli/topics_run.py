"""What the verbs of `ottla topics` do."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from typing import Any

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences, settle
from ottla.cli.configs_run import alter_resources
from ottla.cli.errors import UsageError
from ottla.cli.table import counted, table
from ottla.cli.topics_grow import expand_in_order
from ottla.cli.topics_move import elect, reassign
from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    CreatedTopic,
    NewTopic,
    ResourceKind,
    Topic,
)
from ottla.client.admin.types import BROKER_DEFAULT
from ottla.wire.errors import ErrorCode
from ottla.wire.uuids import uuid_text

INTERNAL_TOPICS = {
    "__consumer_offsets": "all groups and their committed offsets",
    "__transaction_state": "all transactions, also those under way",
    "__share_group_state": "how far share groups are",
}


def create(options: argparse.Namespace) -> int:
    wanted = [
        NewTopic(
            name,
            options.partitions or BROKER_DEFAULT,
            options.replication_factor or BROKER_DEFAULT,
            dict(options.config),
        )
        for name in options.names
    ]
    forgiven = {ErrorCode.TOPIC_ALREADY_EXISTS} if options.if_not_exists else set()
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        created, code = settle(lambda: admin.create_topics(wanted, validate_only=options.dry_run), forgiven)
    _show(options, map(_created_row, created), "can be created" if options.dry_run else "created", _created_line)
    return code


def delete(options: argparse.Namespace) -> int:
    forgiven = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if options.if_exists else set()
    _protect_internal(options)
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        deleted, code = settle(lambda: admin.delete_topics(options.names), forgiven)
    _show(options, ({"name": name} for name in deleted), "deleted")
    return code


def _protect_internal(options: argparse.Namespace) -> None:
    for name in options.names:
        if name in INTERNAL_TOPICS and not options.force:
            raise UsageError(
                f"{name} is the cluster's own: with it go {INTERNAL_TOPICS[name]}; give --force if that is wanted"
            )


def expand(options: argparse.Namespace) -> int:
    wanted = dict.fromkeys(options.names, options.partitions)
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        if options.in_order:
            expanded, code = expand_in_order(options, admin)
        else:
            expanded, code = settle(lambda: admin.expand_topics(wanted, validate_only=options.dry_run))
    rows = ({"name": name, "partitions": options.partitions} for name in expanded)
    _show(options, rows, f"{'can have' if options.dry_run else 'has'} {counted(options.partitions, 'partition')}")
    return code


def alter(options: argparse.Namespace) -> int:
    return alter_resources(options, ResourceKind.TOPIC, options.names)


def list_topics(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        topics = [topic for topic in admin.list_topics() if options.internal or not topic.is_internal]
    for topic in topics:
        print(json.dumps(_topic_row(topic)) if options.json else topic.name)
    return 0


def describe(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        if options.names:
            topics, code = settle(lambda: admin.describe_topics(options.names))
        else:
            topics, code = [topic for topic in admin.list_topics() if not topic.is_internal], 0
        for topic in topics:
            row = _topic_row(topic) | {"partitions": _partition_rows(admin, topic, with_offsets=options.offsets)}
            if options.json:
                print(json.dumps(row))
            else:
                _print_described(row)
    return code


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "alter": alter,
    "delete": delete,
    "expand": expand,
    "reassign": reassign,
    "elect": elect,
}


def _show(
    options: argparse.Namespace, rows: Iterable[dict[str, Any]], what: str,
    line: Callable[[dict[str, Any]], str] = lambda row: str(row["name"]),
) -> None:  # fmt: skip
    for row in rows:
        print(json.dumps(row) if options.json else f"{line(row)}: {what}")


def _created_row(topic: CreatedTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "partitions": topic.partition_count,
        "replication_factor": topic.replication_factor,
    }


def _created_line(row: dict[str, Any]) -> str:
    return f"{row['name']} ({counted(row['partitions'], 'partition')}, {counted(row['replication_factor'], 'replica')})"


def _topic_row(topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": uuid_text(topic.topic_id),
        "is_internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "replication_factor": max((len(partition.replicas) for partition in topic.partitions), default=0),
    }


def _partition_rows(admin: Admin, topic: Topic, *, with_offsets: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {
            "partition": partition.index,
            "leader": partition.leader_id,
            "leader_epoch": partition.leader_epoch,
            "replicas": list(partition.replicas),
            "in_sync": list(partition.in_sync_replicas),
            "offline": list(partition.offline_replicas),
        }
        for partition in topic.partitions
    ]
    if with_offsets:
        first = admin.find_offsets(topic.name, EARLIEST)
        end = admin.find_offsets(topic.name, LATEST)
        for row in rows:
            row |= {"start_offset": first[row["partition"]], "end_offset": end[row["partition"]]}
    return rows


def _print_described(row: dict[str, Any]) -> None:
    partitions = row["partitions"]
    counts = f"{counted(row['partition_count'], 'partition')}  {counted(row['replication_factor'], 'replica')}"
    print(f"{row['name']}  id {row['topic_id']}  {counts}")
    if partitions:
        heading = [name.replace("_", " ") for name in partitions[0]]
        cells = [[_cell(value) for value in partition.values()] for partition in partitions]
        for line in table(heading, cells):
            print(f"  {line}")
    print()


def _cell(value: int | list[int]) -> int | str:
    return value if isinstance(value, int) else ",".join(map(str, value)) or "-"
