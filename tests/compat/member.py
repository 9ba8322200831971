"""One member of a group: the process (`python -m tests.compat.member`), and what a test sees of it."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

from tests.compat.group_consumers import CONSUMERS, Delivered, Membership, Place
from tests.compat.reporting_process import Commands, Line, ReportingProcess, eventually, tell


class Member(ReportingProcess):
    def __init__(self, library: str, membership: Membership) -> None:
        self.owned: set[Place] = set()
        self.delivered: list[Delivered] = []
        self.rebalances: list[tuple[str, set[Place]]] = []
        """What it was told of partitions, without what told of none."""
        super().__init__("tests.compat.member", library, json.dumps(asdict(membership)))

    def _hear(self, line: Line) -> None:
        match line:
            case ["assigned", places]:
                self._rebalanced("assigned", set(map(tuple, places)))
            case ["revoked", places]:
                self._rebalanced("revoked", set(map(tuple, places)))
            case ["delivered", *record]:
                self.delivered.append((record[0], record[1], record[2], record[3]))

    def _rebalanced(self, what: str, places: set[Place]) -> None:
        if places:
            self.rebalances.append((what, places))
        self.owned = self.owned | places if what == "assigned" else self.owned - places

    @property
    def values(self) -> list[str]:
        return [value for _topic, _partition, _offset, value in self.delivered]

    def owners_of(self, topic: str) -> set[int]:
        return {partition for name, partition in self.owned if name == topic}

    def commit(self) -> None:
        count = sum(line[0] == "committed" for line in self.lines)
        self.command("commit")
        eventually(lambda: sum(line[0] == "committed" for line in self.lines) > count, lambda: self.lines[-3:])

    def sleep(self) -> None:
        """Polls no more, while its threads go on."""
        self.command("sleep")
        self.wait_for("sleeping")

    def wake(self) -> None:
        self.command("wake")

    def leave(self) -> None:
        self.command("close")
        self.wait_for("closed")
        self._end()


Join: TypeAlias = Callable[[str, Membership], Member]


def settled(members: Sequence[Member], topic: str, partition_count: int) -> list[set[int]]:
    """The partitions of each, when all have an owner, none has two, and the shares are even."""
    everything = set(range(partition_count))

    def is_settled() -> bool:
        shares = [member.owners_of(topic) for member in members]
        sizes = [len(share) for share in shares]
        return sum(sizes) == partition_count and set().union(*shares) == everything and max(sizes) - min(sizes) <= 1

    eventually(is_settled, lambda: [member.lines[-5:] for member in members])
    return [member.owners_of(topic) for member in members]


def delivered_once(members: Sequence[Member], values: Sequence[str]) -> None:
    """Returns when each value has come to one of them; fails if one came twice, or what was not expected."""
    eventually(
        lambda: sum(len(member.values) for member in members) >= len(values),
        lambda: f"{[len(member.values) for member in members]} of {len(values)}",
    )
    assert Counter(value for member in members for value in member.values) == Counter(values)


def main(library: str, membership: dict[str, Any]) -> None:
    commands = Commands()
    consumer = CONSUMERS[library](Membership(**membership), tell)
    while True:
        for record in consumer.poll():
            tell("delivered", *record)
        for [command] in commands.waiting():
            if command == "commit":
                consumer.commit()
                tell("committed")
            elif command == "sleep":
                tell("sleeping")
                commands.next()
            elif command == "close":
                consumer.close()
                tell("closed")
                return


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
