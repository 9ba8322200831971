"""`ottla groups reset-offsets`: where the offsets of a group shall be, shown first and then done."""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import NamedTuple

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences, settle
from ottla.cli.errors import CommandFailed
from ottla.cli.groups_run import places_of, print_table
from ottla.cli.table import counted
from ottla.client import (
    EARLIEST,
    LATEST,
    Admin,
    AtTime,
    GroupDescription,
    Isolation,
    Offset,
    Position,
    ServerError,
    TopicPartition,
)
from ottla.client.group.assignors import by_topic
from ottla.wire.errors import ErrorCode

Places = Iterable[TopicPartition]
Offsets = dict[TopicPartition, int]


class Change(NamedTuple):
    """Where an offset is to go. `asked` is where it was to go, if no record can be there."""

    place: TopicPartition
    committed_offset: int | None
    new_offset: int
    asked: int

    @property
    def note(self) -> str | None:
        if self.asked == self.new_offset:
            return None
        edge = "before the start" if self.asked < self.new_offset else "behind the end"
        return f"{self.asked} is {edge}"


def reset_offsets(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        group = _group(admin, options.group, may_be_new=options.create)
        if group is not None and group.members:
            _warn_of_members(group, options)
        changes = _plan(admin, options)
        if not changes:
            raise CommandFailed(f"group {options.group} has committed nothing of that: name topics with --topic")
        done, code = {change.place for change in changes}, 0
        if options.execute:
            new = {change.place: change.new_offset for change in changes}
            altered, code = settle(lambda: admin.alter_group_offsets(options.group, new))
            done = set(altered)
    _show(options, [change for change in changes if change.place in done])
    return code


def _group(admin: Admin, name: str, *, may_be_new: bool) -> GroupDescription | None:
    try:
        return admin.describe_groups([name])[0]
    except ServerError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        if not may_be_new:
            raise CommandFailed(
                f"there is no group {name}: see 'ottla groups list', or give --create if it shall come to be"
            ) from None
        return None


def _warn_of_members(group: GroupDescription, options: argparse.Namespace) -> None:
    """While members are at work only they move offsets; a plan can be made all the same."""
    hosts = ", ".join(sorted({f"{member.client_id} on {member.host}" for member in group.members}))
    sentence = f"group {group.group_id} has {counted(len(group.members), 'member')} ({hosts}): stop them"
    if options.execute:
        raise CommandFailed(f"{sentence} first, or wait until their sessions have ended")
    print(f"ottla: {sentence} before you give --execute", file=sys.stderr)


# The plan.


def _plan(admin: Admin, options: argparse.Namespace) -> list[Change]:
    committed = admin.list_group_offsets(options.group)
    if options.from_file is not None:
        wanted = _read_file(options.from_file, options.group)
        places_of(admin, [(topic, None) for topic in by_topic(wanted)])
    else:
        places = set(committed) if options.all_topics else places_of(admin, options.topic)
        wanted = _wanted(admin, options, sorted(places), committed)
    starts = _find(admin, wanted, EARLIEST, Isolation.READ_UNCOMMITTED)
    ends = _find(admin, wanted, LATEST, Isolation.READ_UNCOMMITTED)
    return [
        Change(
            place,
            committed[place].offset if place in committed else None,
            min(max(asked, starts[place]), ends[place]),
            asked,
        )
        for place, asked in sorted(wanted.items())
    ]


def _wanted(
    admin: Admin, options: argparse.Namespace, places: list[TopicPartition], committed: dict[TopicPartition, Offset]
) -> Offsets:
    if options.to_current:
        return {place: committed[place].offset for place in places if place in committed}
    if options.shift_by is not None:
        for place in places:
            if place not in committed:
                raise CommandFailed(
                    f"group {options.group} has committed nothing of {place} that could be shifted: "
                    "name partitions as in orders:0,1, or use --all-topics"
                )
        return {place: committed[place].offset + options.shift_by for place in places}
    return _find(admin, places, _position(options), Isolation.READ_COMMITTED)


def _position(options: argparse.Namespace) -> Position:
    """What an open transaction has written counts as coming from now on: so the end is the last stable offset."""
    if options.to_earliest:
        return EARLIEST
    if options.to_latest:
        return LATEST
    if options.to_datetime is not None:
        return AtTime(options.to_datetime)
    if options.by_duration is not None:
        return AtTime(time.time_ns() // 1_000_000 - options.by_duration)
    offset: int = options.to_offset
    return offset


def _find(admin: Admin, places: Places, position: Position, isolation: Isolation) -> Offsets:
    return {
        TopicPartition(topic, index): offset
        for topic, indexes in by_topic(places).items()
        for index, offset in admin.find_offsets(topic, position, indexes, isolation).items()
    }


def _read_file(path: str, group: str) -> Offsets:
    """Lines of topic,partition,offset; or with the group in front, as Kafka's tool writes those of several."""
    wanted: Offsets = {}
    with nullcontext(sys.stdin) if path == "-" else open(path, encoding="utf-8", newline="") as file:
        for number, cells in enumerate(csv.reader(file), 1):
            cells = [cell.strip() for cell in cells]
            if cells in ([], [""]) or (len(cells) == 4 and cells[0] != group):
                continue
            *_, topic, partition, offset = cells if len(cells) in (3, 4) else ("", "", "")
            if not (topic and partition.isdecimal() and offset.isdecimal()):
                raise CommandFailed(f"{path}, line {number}: not topic,partition,offset as in orders,0,1000")
            wanted[TopicPartition(topic, int(partition))] = int(offset)
    if not wanted:
        raise CommandFailed(f"{path} has no offsets of group {group}: lines are topic,partition,offset")
    return wanted


# What is shown.


def _show(options: argparse.Namespace, changes: list[Change]) -> None:
    if options.export:
        csv.writer(sys.stdout, lineterminator="\n").writerows((*one.place, one.new_offset) for one in changes)
    elif options.json:
        for one in changes:
            print(json.dumps({"group": options.group} | _row(one) | {"is_done": options.execute}))
    else:
        _print_plan(options, changes)


def _row(change: Change) -> dict[str, str | int | None]:
    return {
        "topic": change.place.topic,
        "partition": change.place.partition,
        "committed_offset": change.committed_offset,
        "new_offset": change.new_offset,
        "note": change.note,
    }


def _print_plan(options: argparse.Namespace, changes: list[Change]) -> None:
    rows = [_row(change) for change in changes]
    if all(row["note"] is None for row in rows):
        for row in rows:
            del row["note"]
    print_table(rows)
    what = counted(len(rows), "offset")
    if options.execute:
        print(f"{what} of group {options.group} set")
    else:
        print(f"{what} of group {options.group} would be set; nothing is changed without --execute")
