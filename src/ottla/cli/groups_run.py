"""What the verbs of `ottla groups` do that look at groups and delete them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences, settle
from ottla.cli.groups_held import held_line, held_rows
from ottla.cli.progress import Progress
from ottla.cli.table import counted, table
from ottla.client import Admin, GroupDescription, GroupLag, GroupMember, TopicPartition
from ottla.client.group.assignors import by_topic
from ottla.wire.errors import ErrorCode

Row = dict[str, Any]
DESCRIBED_TYPES = ("classic", "consumer")


def list_groups(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        listed = admin.list_groups(states=options.state, types=options.type)
    rows = [
        {"group": one.group_id, "type": one.type, "state": one.state, "coordinator": one.coordinator_id}
        for one in listed
    ]
    if options.json:
        for row in rows:
            print(json.dumps(row))
    else:
        print_table(rows)
    return 0


def describe(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        names = options.names or [one.group_id for one in admin.list_groups() if one.type in DESCRIBED_TYPES]
        groups, code = settle(lambda: admin.describe_groups(names))
        for group in groups:
            row = _described(admin, group, options)
            if options.json:
                print(json.dumps(row))
            else:
                _print_described(row)
    return code


def delete(options: argparse.Namespace) -> int:
    forgiven = (ErrorCode.GROUP_ID_NOT_FOUND,) if options.if_exists else ()
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        if options.topic:
            [group] = options.names
            places = sorted(places_of(admin, options.topic))
            offsets, code = settle(lambda: admin.delete_group_offsets(group, places), forgiven)
            rows = [{"group": group, "topic": place.topic, "partition": place.partition} for place in offsets]
            lines = [f"{group}: {place}: deleted" for place in offsets]
        else:
            deleted, code = settle(lambda: admin.delete_groups(options.names), forgiven)
            rows = [{"group": name} for name in deleted]
            lines = [f"{name}: deleted" for name in deleted]
    for row, line in zip(rows, lines, strict=True):
        print(json.dumps(row) if options.json else line)
    return code


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {"list": list_groups, "describe": describe, "delete": delete}


def places_of(admin: Admin, named: Iterable[tuple[str, Sequence[int] | None]]) -> set[TopicPartition]:
    """The partitions that were named, which may be all of a topic. That it is there is checked."""
    places: set[TopicPartition] = set()
    for name, indexes in named:
        [topic] = admin.describe_topics([name])
        places |= {
            TopicPartition(name, index) for index in (range(len(topic.partitions)) if indexes is None else indexes)
        }
    return places


def print_table(rows: Sequence[Row], indent: str = "") -> None:
    if not rows:
        return
    heading = [name.replace("_", " ") for name in rows[0]]
    for line in table(heading, [list(row.values()) for row in rows]):
        print(f"{indent}{line}")


def _described(admin: Admin, group: GroupDescription, options: argparse.Namespace) -> Row:
    row: Row = {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "member_count": len(group.members),
    }
    if options.offsets or not (options.members or options.state):
        owners = {place: member for member in group.members for place in member.assignment}
        lags = admin.group_lags(group.group_id, owners, in_records=False)
        offsets = _offset_rows(admin, lags, owners, is_counted=not options.fast, is_quiet=options.json)
        row["lag"] = sum(offset["lag"] or 0 for offset in offsets)
        row["lag_in"] = "offsets" if options.fast else "records"
        row["offsets"] = offsets
        held = held_rows(admin, lags)
        if held:
            row["held_back"] = held
    if options.members:
        row["members"] = list(map(_member_row, group.members))
    if options.state:
        row |= {
            "coordinator": group.coordinator_id,
            "protocol": group.protocol_type,
            "assignor": group.assignor,
            "epoch": group.epoch,
            "assignment_epoch": group.assignment_epoch,
        }
    return row


def _offset_rows(
    admin: Admin,
    lags: Mapping[TopicPartition, GroupLag],
    owners: Mapping[TopicPartition, GroupMember],
    *,
    is_counted: bool,
    is_quiet: bool,
) -> list[Row]:
    """Of what is committed, and of what is read without a commit so far."""
    counts = _count(admin, lags, is_quiet=is_quiet) if is_counted else {}
    rows = []
    for place, lag in lags.items():
        owner = owners.get(place)
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "committed_offset": None if lag.committed is None else lag.committed.offset,
                "end_offset": lag.end_offset,
                "lag": counts.get(place) if is_counted else lag.offsets,
                "metadata": None if lag.committed is None else lag.committed.metadata,
                "member": None if owner is None else owner.member_id,
                "host": None if owner is None else owner.host,
            }
        )
    return rows


def _count(admin: Admin, lags: Mapping[TopicPartition, GroupLag], *, is_quiet: bool) -> dict[TopicPartition, int]:
    ranges = {
        place: (lag.committed.offset, lag.end_offset)
        for place, lag in lags.items()
        if lag.committed is not None and lag.end_offset is not None
    }
    progress = Progress(sum(lag.offsets or 0 for lag in lags.values()), is_wanted=not is_quiet)
    try:
        return admin.count_records(ranges, lambda place, count: progress.advance(f"counted {place}", count))
    finally:
        progress.clear()


def _member_row(member: GroupMember) -> Row:
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.host,
        "epoch": member.epoch,
        "is_classic": member.is_classic,
        "topics": list(member.topics),
        "regex": member.topic_regex,
        "partitions": by_topic(member.assignment),
        "target": by_topic(member.target),
    }


def _print_described(row: Row) -> None:
    heading = [row["group"], row["type"], row["state"], counted(row["member_count"], "member")]
    if "lag" in row:
        heading.append(f"{counted(row['lag'], row['lag_in'].removesuffix('s'))} behind")
    print("  ".join(heading))
    if "coordinator" in row:
        print(f"  coordinator {row['coordinator']}, assignor {row['assignor'] or '-'}", end="")
        print("" if row["epoch"] is None else f", epoch {row['epoch']}, assigned in {row['assignment_epoch']}")
    if "offsets" in row:
        print_table([_offset_cells(offset, row["lag_in"]) for offset in row["offsets"]], "  ")
    for held in row.get("held_back", ()):
        print(f"  {held_line(held)}")
    if "members" in row:
        print_table([_member_cells(member) for member in row["members"]], "  ")
    print()


def _offset_cells(row: Row, lag_in: str) -> Row:
    name = "lag" if lag_in == "records" else "lag in offsets"
    return {name if key == "lag" else key: value for key, value in row.items() if key != "metadata"}


def _member_cells(row: Row) -> Row:
    """Where a member moves to is shown while it does."""
    reads = _places_text(row["partitions"])
    if row["target"] != row["partitions"]:
        reads += f" -> {_places_text(row['target'])}"
    return {
        "member": row["member"],
        "instance": row["instance"],
        "client": row["client"],
        "host": row["host"],
        "subscribes_to": row["regex"] or ",".join(row["topics"]) or None,
        "reads": reads,
    }


def _places_text(partitions: Mapping[str, Sequence[int]]) -> str:
    return " ".join(f"{topic}:{','.join(map(str, indexes))}" for topic, indexes in partitions.items()) or "-"
