"""Partitions that a group is not given yet, because their topic has grown in order; and why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ottla.client import Admin, GroupLag, TopicPartition
from ottla.records.growth import NO_OFFSET, held_back

Row = dict[str, Any]


def held_rows(admin: Admin, lags: Mapping[TopicPartition, GroupLag]) -> list[Row]:
    there = {place.topic for place, lag in lags.items() if lag.end_offset is not None}
    rows: list[Row] = []
    for name, growths in sorted(admin.describe_growths(sorted(there)).items()) if there else ():
        committed = {
            place.partition: lag.committed.offset
            for place, lag in lags.items()
            if place.topic == name and lag.committed is not None
        }
        held = held_back(growths, lambda index: committed.get(index, NO_OFFSET))  # noqa: B023 - called at once
        rows += [
            {
                "topic": name,
                "partition": index,
                "parent": why.parent,
                "fence": None if why.fence == NO_OFFSET else why.fence,
                "committed_offset": committed.get(why.parent),
            }
            for index, why in sorted(held.items())
        ]
    return rows


def held_line(row: Row) -> str:
    place, parent = f"{row['topic']}-{row['partition']}", f"{row['topic']}-{row['parent']}"
    if row["fence"] is None:
        return f"{place} is being added, and is not open yet"
    committed = row["committed_offset"]
    if committed is None:
        return f"{place} waits until the group has committed {parent} up to {row['fence']}; it never committed it"
    if committed >= row["fence"]:
        return f"{place} waits for {parent}, which waits itself"
    return f"{place} waits until the group has committed {parent} up to {row['fence']}; it is at {committed}"
