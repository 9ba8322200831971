"""The clients of a run: those of the checker, and one that moves partitions: `python -m tests.chaos.clients`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from ottla.client import Admin, TopicPartition
from tests.checker.clients import INPUT, OUTPUT, PARTITIONS, ROLES, TABLE, Context, main

BROKERS = (1, 2, 3)
PAUSE_S = (0.5, 3.0)


def move(context: Context) -> None:
    """Other preferred leaders, and now and then two replicas in place of three: the third is to be copied anew."""
    places = [TopicPartition(topic, partition) for topic in (INPUT, OUTPUT, TABLE) for partition in range(PARTITIONS)]
    with Admin(context.bootstrap) as admin:
        while context.is_wanted():
            time.sleep(context.random.uniform(*PAUSE_S))
            place = context.random.choice(places)
            replicas = context.random.sample(BROKERS, context.random.choice((2, 3, 3)))
            admin.alter_partition_reassignments({place: replicas})
            if context.random.random() < 0.5:
                admin.elect_leaders([place])


CHAOS_ROLES: dict[str, Callable[[Context], None]] = {**ROLES, "mover": move}


if __name__ == "__main__":
    main(CHAOS_ROLES, *sys.argv[1:])
