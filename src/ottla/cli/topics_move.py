"""What `ottla topics reassign` and `ottla topics elect` do."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences, settle
from ottla.cli.errors import CommandFailed, UsageError
from ottla.cli.table import counted
from ottla.cli.topics_throttle import hold_back, let_go
from ottla.client import Admin, ElectionKind, Reassignment, TopicPartition

LOOK_AGAIN_SECONDS = 0.2


def reassign(options: argparse.Namespace) -> int:
    _check(options)
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        places, code = _places(admin, options)
        if not (options.brokers or options.cancel):
            moves = admin.list_partition_reassignments(places or None)
            _show_moves(options, moves)
            if options.verify and not moves:
                let_go(admin, options.names)
            return code
        wanted: dict[TopicPartition, list[int] | None] = (
            dict.fromkeys(places) if options.cancel else _spread(places, options.brokers, options.replication)
        )
        if options.throttle and wanted:
            hold_back(admin, wanted, options.throttle)
        begun, refused = settle(lambda: admin.alter_partition_reassignments(wanted)) if wanted else ([], 0)
        if options.wait and begun and not options.cancel:
            _wait(admin, begun, options.wait, is_throttled=options.throttle is not None)
        if options.cancel or (options.throttle and (options.wait or not begun)):
            let_go(admin, sorted({place.topic for place in begun or wanted}))
    for place in begun:
        _show(options, place, "the move is given up" if options.cancel else _moved(options, wanted[place]))
    return code or refused


def elect(options: argparse.Namespace) -> int:
    if options.partition and not options.names:
        raise UsageError("--partition: name the topic; see 'ottla topics elect --help'")
    kind = ElectionKind.UNCLEAN if options.unclean else ElectionKind.PREFERRED
    if options.unclean and not options.names:
        raise UsageError("--unclean may lose records: name the topics")
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        places, code = _places(admin, options)
        if options.names and not places:
            return code
        elected, refused = settle(lambda: admin.elect_leaders(list(places) or None, kind))
    for place in elected:
        _show(options, place, "has another leader")
    if not elected and not options.json and not (code or refused):
        print("every leader is the right one already")
    return code or refused


def _check(options: argparse.Namespace) -> None:
    if options.brokers and options.cancel:
        raise UsageError("--to and --cancel exclude each other; see 'ottla topics reassign --help'")
    if (options.brokers or options.cancel or options.partition) and not options.names:
        raise UsageError("name the topics; see 'ottla topics reassign --help'")
    if options.throttle and not options.brokers:
        raise UsageError("--throttle: say with --to which brokers shall have them")
    if options.verify and (options.brokers or options.cancel or not options.names):
        raise UsageError("--verify: name topics that were moved, and nothing else")
    if options.replication and not options.brokers:
        raise UsageError("--replication: say with --to which brokers may have them")
    if options.brokers and options.replication and options.replication > len(options.brokers):
        raise UsageError(
            f"--replication {options.replication}: --to names only {counted(len(options.brokers), 'broker')}"
        )


def _places(admin: Admin, options: argparse.Namespace) -> tuple[dict[TopicPartition, int], int]:
    """The partitions that are meant, with how many replicas they have, and an exit code."""
    if not options.names:
        return {}, 0
    topics, code = settle(lambda: admin.describe_topics(options.names))
    places: dict[TopicPartition, int] = {}
    for topic in topics:
        counts = {partition.index: len(partition.replicas) for partition in topic.partitions}
        for index in options.partition or counts:
            if index not in counts:
                raise CommandFailed(f"{topic.name} has {counted(len(counts), 'partition')}, and no {index}")
            places[TopicPartition(topic.name, index)] = counts[index]
    return places, code


def _spread(
    places: dict[TopicPartition, int], brokers: list[int], replication: int | None
) -> dict[TopicPartition, list[int] | None]:
    """Each partition begins with another broker, so that all lead their share."""
    spread: dict[TopicPartition, list[int] | None] = {}
    for number, (place, count) in enumerate(places.items()):
        start = number % len(brokers)
        spread[place] = (brokers[start:] + brokers[:start])[: replication or min(count, len(brokers))]
    return spread


def _wait(admin: Admin, begun: list[TopicPartition], seconds: float, *, is_throttled: bool) -> None:
    throttled = ", and its throttle stays until --verify finds it over" if is_throttled else ""
    deadline = time.monotonic() + seconds
    while left := admin.list_partition_reassignments(begun):
        if time.monotonic() > deadline:
            raise CommandFailed(
                f"{counted(len(left), 'partition')} not there yet after {seconds:g} s; the move goes on{throttled}"
            )
        time.sleep(LOOK_AGAIN_SECONDS)


def _moved(options: argparse.Namespace, brokers: list[int] | None) -> str:
    return f"{'moved' if options.wait else 'moves'} to {', '.join(map(str, brokers or ()))}"


def _show(options: argparse.Namespace, place: TopicPartition, what: str) -> None:
    if options.json:
        print(json.dumps({"name": place.topic, "partition": place.partition}))
    else:
        print(f"{place.topic}-{place.partition}: {what}")


def _show_moves(options: argparse.Namespace, moves: dict[TopicPartition, Reassignment]) -> None:
    for place, move in sorted(moves.items()):
        row: dict[str, Any] = {"name": place.topic, "partition": place.partition, **move._asdict()}
        if options.json:
            print(json.dumps(row))
        else:
            coming, going = (", ".join(map(str, brokers)) or "-" for brokers in (move.adding, move.removing))
            print(f"{place.topic}-{place.partition}: coming {coming}, going {going}")
    if not moves and not options.json:
        print("no partition is on its way")
