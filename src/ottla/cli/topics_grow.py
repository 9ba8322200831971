"""What `ottla topics expand --in-order` does: it looks at the keys first, has the topics grow, and waits for it."""

from __future__ import annotations

import argparse
import time

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
    for name in options.names:
        _check_keys(options, admin, name)
    wanted = dict.fromkeys(options.names, options.partitions)
    begun, code = settle(
        lambda: admin.expand_in_order(
            wanted, partitioner=options.partitioner, quiet_ms=options.quiet_ms, validate_only=options.dry_run
        )
    )
    if begun and not options.dry_run:
        _wait(admin, begun)
    return begun, code


def _check_keys(options: argparse.Namespace, admin: Admin, name: str) -> None:
    """A topic whose producers choose partitions in another way would refuse all that they write."""
    [topic] = admin.describe_topics([name])
    growths = admin.describe_growths([name])[name]
    count = growths[0].first if growths else len(topic.partitions)  # with which the oldest records were placed
    if count == 1:
        return
    starts, ends = admin.find_offsets(name, EARLIEST), admin.find_offsets(name, LATEST)
    for index in range(len(topic.partitions)):
        start = max(starts[index], ends[index] - SAMPLE)
        if start >= ends[index]:
            continue
        keys = _keys(options, name, index, start, ends[index])
        if strays_among(keys, index % count, count, options.partitioner):
            fitting = [each for each in PARTITIONERS if not strays_among(keys, index % count, count, each)]
            hint = f"; --partitioner {fitting[0]} puts them there" if len(fitting) == 1 else ""
            raise CommandFailed(
                f"{name}-{index} has keys that {options.partitioner} puts into other partitions: its producers would "
                f"be refused{hint}"
            )


def _keys(options: argparse.Namespace, name: str, index: int, start: int, end: int) -> list[bytes | None]:
    keys: list[bytes | None] = []
    reader = Reader(bootstrap_of(options), name, [index], start=start, end=end, options=client_options(options))
    with reader:
        while not reader.is_done:
            keys += [record.key for fetched in reader.poll() for record in fetched.records]
    return keys


def _wait(admin: Admin, names: list[str]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while growing := [name for name, growths in admin.describe_growths(names).items() if _grows(growths)]:
        if time.monotonic() > deadline:
            raise CommandFailed(f"{', '.join(growing)}: not open yet after {WAIT_SECONDS:g} s; it goes on")
        time.sleep(LOOK_AGAIN_SECONDS)


def _grows(growths: tuple[Growth, ...]) -> bool:
    return bool(growths) and growths[-1].phase is not Phase.OPEN
