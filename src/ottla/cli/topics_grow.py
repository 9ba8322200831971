"""What `ottla topics expand --in-order` does: it looks at the keys first, has the topics grow, and waits for it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping

from ottla.cli.broker_options import bootstrap_of, client_options, settle
from ottla.cli.errors import CommandFailed
from ottla.client import EARLIEST, LATEST, Admin, Reader
from ottla.records.growth import Growth, Phase
from ottla.records.placement import PARTITIONERS, strays_among

LOOK_AGAIN_SECONDS = 0.1
WAIT_SECONDS = 90.0
SAMPLE = 200  # records at the end of each partition whose keys are looked at


def expand_in_order(options: argparse.Namespace, admin: Admin) -> tuple[list[str], int]:
    """The topics that have grown, and the exit code."""
    ids = _ids_of(admin)
    for name in options.names:
        _check_keys(options, admin, name)
    wanted = dict.fromkeys(options.names, options.partitions)
    begun, code = settle(
        lambda: admin.expand_in_order(
            wanted, partitioner=options.partitioner, quiet_ms=options.quiet_ms, validate_only=options.dry_run
        )
    )
    if begun and not options.dry_run:
        _wait(admin, {name: ids.get(name) for name in begun}, options.partitions)
    return begun, code


def _check_keys(options: argparse.Namespace, admin: Admin, name: str) -> None:
    """A topic whose producers choose partitions in another way would refuse all that they write."""
    [topic] = admin.describe_topics([name])
    count = len(topic.partitions)
    counts = {count}  # with which the records that are there may have been placed
    for growth in admin.describe_growths([name])[name]:
        counts |= {growth.first, growth.total}
    if count == 1:
        return
    starts, ends = admin.find_offsets(name, EARLIEST), admin.find_offsets(name, LATEST)
    for index in range(count):
        start = max(starts[index], ends[index] - SAMPLE)
        if start >= ends[index]:
            continue
        keys = _keys(options, name, index, start, ends[index])
        if _have_strays(keys, index, counts, options.partitioner):
            fitting = [each for each in PARTITIONERS if not _have_strays(keys, index, counts, each)]
            hint = f"; --partitioner {fitting[0]} puts them there" if len(fitting) == 1 else ""
            raise CommandFailed(
                f"{name}-{index} has keys that {options.partitioner} puts into other partitions: its producers would "
                f"be refused{hint}"
            )


def _have_strays(keys: list[bytes | None], index: int, counts: set[int], partitioner: str) -> bool:
    """Whether one of these keys belongs to another partition than `index` by all counts that the topic has had."""
    for count in sorted(counts):
        if count > index:
            keys = [key for key in keys if strays_among([key], index, count, partitioner)]
    return bool(keys)


def _keys(options: argparse.Namespace, name: str, index: int, start: int, end: int) -> list[bytes | None]:
    keys: list[bytes | None] = []
    reader = Reader(bootstrap_of(options), name, [index], start=start, end=end, options=client_options(options))
    with reader:
        while not reader.is_done:
            keys += [record.key for fetched in reader.poll() for record in fetched.records]
    return keys


def _ids_of(admin: Admin) -> dict[str, bytes]:
    return {topic.name: topic.topic_id for topic in admin.list_topics()}


def _wait(admin: Admin, ids: Mapping[str, bytes | None], count: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while growing := _growing(admin, ids, count):
        if not all(growing.values()):
            present = _ids_of(admin)
            others = [name for name in growing if present.get(name) != ids[name]]
            if others:
                raise CommandFailed(f"{', '.join(others)}: deleted, and created again, while it grew")
        if time.monotonic() > deadline:
            raise CommandFailed(f"{', '.join(growing)}: not open yet after {WAIT_SECONDS:g} s; it goes on")
        time.sleep(LOOK_AGAIN_SECONDS)


def _growing(admin: Admin, names: Iterable[str], count: int) -> dict[str, tuple[Growth, ...]]:
    """The topics that are not open yet; without growths where the broker that was asked knows of none."""
    return {
        name: growths
        for name, growths in admin.describe_growths(list(names)).items()
        if not any(growth.total >= count and growth.phase is Phase.OPEN for growth in growths)
    }
