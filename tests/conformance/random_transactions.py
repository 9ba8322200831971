"""Random requests of one transactional id and one group, in any order, to Apache Kafka and to Ottla: do they agree?

`python -m tests.conformance.random_transactions --seed 7 --rounds 100` tells the first difference of each round. In a
round all producers are of one version of transactions: what Kafka makes of both on the same partition hangs on which
of them was refused before.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from ottla.records.read import read_batches
from tests.apache_kafka.harness import ApacheKafka
from tests.conformance.__main__ import PROPERTIES, await_coordinator
from tests.conformance.group_requests import commit, delete_groups, delete_offsets, fetch_offsets, list_groups
from tests.conformance.ottla_broker import running_ottla
from tests.conformance.requests import fetch, fetch_partition
from tests.conformance.script import Script
from tests.conformance.transaction_requests import (
    Producer,
    add_offsets,
    add_partitions,
    commit_offsets,
    describe_producers,
    describe_transactions,
    end,
    init,
    write,
)

STEPS = 40
SHOWN_STEPS = 12
PARTITIONS = (0, 1)
NOT_READY = (14, 15, 16)


class Versions(NamedTuple):
    """Of the requests that clients of one version of transactions send."""

    init: int
    produce: int
    end: int
    commit: int


VERSIONS = (Versions(3, 11, 4, 4), Versions(5, 12, 5, 5))


class Who(NamedTuple):
    """One of the producers that were given so far, by its place, or the one of the epoch before it."""

    place: int
    added_epoch: int


class Side:
    """One of the two brokers, and what it has given."""

    def __init__(self, address: tuple[str, int], token: str, versions: Versions) -> None:
        self.script = Script(address, token)
        self._versions = versions
        self._topic = self.script.topic(partitions=len(PARTITIONS), configs={"retention.ms": "-1"})
        self._transactional_id = self.script.transactional_id()
        self._group = self.script.group()
        self._given: list[tuple[int, int]] = []
        self._numbers: dict[int, int] = {}  # of producer ids, in the order in which they are met
        self.script.ask_until(init(None), until=lambda answer: answer.error_code not in NOT_READY)

    def _number(self, producer_id: int) -> int:
        return self._numbers.setdefault(producer_id, len(self._numbers)) if producer_id >= 0 else producer_id

    def _producer(self, who: Who) -> Producer:
        producer_id, epoch = self._given[who.place % len(self._given)]
        return Producer(self._transactional_id, producer_id, max(epoch + who.added_epoch, 0))

    def _take(self, answer: Any) -> tuple[int, int, int]:
        """A producer, if one is given."""
        if not answer.error_code and (answer.producer_id, answer.producer_epoch) not in self._given:
            self._given.append((answer.producer_id, answer.producer_epoch))
        return answer.error_code, self._number(answer.producer_id), answer.producer_epoch

    # What is asked, and what of the answer is compared

    def begin(self, who: Who | None) -> Any:
        producer = Producer(self._transactional_id, -1, -1) if who is None else self._producer(who)
        request = init(self._transactional_id, producer_id=producer.id, epoch=producer.epoch)
        return self._take(self.script.ask(request, self._versions.init))

    def add(self, who: Who, partition: int) -> Any:
        request = add_partitions(self._producer(who), {self._topic.name: [partition]}, version=3)
        [topic] = self.script.ask(request, 3).results_by_topic_v3_and_below
        return topic.results_by_partition[0].partition_error_code

    def write(self, who: Who, partition: int, sequence: int) -> Any:
        request = write(self._producer(who), self._topic, sequence, partition=partition)
        [answer] = self.script.ask(request, self._versions.produce).responses[0].partition_responses
        return answer.error_code, answer.base_offset

    def end(self, who: Who, is_commit: bool) -> Any:
        answer = self.script.ask(end(self._producer(who), is_commit), self._versions.end)
        return self._take(answer) if answer.producer_id >= 0 else answer.error_code

    def add_offsets(self, who: Who) -> Any:
        return self.script.ask(add_offsets(self._producer(who), self._group), 3).error_code

    def commit_offsets(self, who: Who, partition: int, offset: int) -> Any:
        request = commit_offsets(self._producer(who), self._group, self._topic, (partition, offset))
        return self.script.ask(request, self._versions.commit).topics[0].partitions[0].error_code

    def commit(self, partition: int, offset: int) -> Any:
        request = commit(self._group, self._topic, (partition, offset))
        return self.script.ask(request, 8).topics[0].partitions[0].error_code

    def fetch_offsets(self, is_stable: bool) -> Any:
        answer = self.script.ask(fetch_offsets(self._group, {self._topic: PARTITIONS}, stable=is_stable), 8)
        return [(each.error_code, each.committed_offset) for each in answer.groups[0].topics[0].partitions]

    def delete_offsets(self, partition: int) -> Any:
        answer = self.script.ask(delete_offsets(self._group, {self._topic.name: [partition]}))
        return answer.error_code, [each.error_code for topic in answer.topics for each in topic.partitions]

    def delete_group(self) -> Any:
        return self.script.ask(delete_groups(self._group)).results[0].error_code

    def list_group(self) -> Any:
        groups = self.script.ask(list_groups(), 5).groups
        return [(group.group_state, group.group_type) for group in groups if group.group_id == self._group]

    # What is true after it

    def state(self) -> Any:
        """Of the transaction, when its markers are written."""
        request = describe_transactions(self._transactional_id)

        def is_settled(answer: Any) -> bool:
            [state] = answer.transaction_states
            return not state.transaction_state.startswith("Prepare") and state.error_code not in NOT_READY

        [state] = self.script.ask_until(request, until=is_settled).transaction_states
        if state.error_code:
            return state.error_code
        topics = sorted((topic.topic.partition("-")[0], sorted(topic.partitions)) for topic in state.topics)
        return state.transaction_state, self._number(state.producer_id), state.producer_epoch, topics

    def records(self) -> Any:
        """All that is in the partitions, as readers of both kinds get it, and who wrote there."""
        seen = [self._read(partition, isolation) for partition in PARTITIONS for isolation in (0, 1)]
        [topic] = self.script.ask(describe_producers({self._topic.name: PARTITIONS})).topics
        partitions = sorted(topic.partitions, key=lambda each: each.partition_index)
        return [*seen, *(self._writers(partition) for partition in partitions)]

    def _writers(self, partition: Any) -> Any:
        producers = partition.active_producers
        return sorted((self._number(each.producer_id), each.producer_epoch, each.last_sequence) for each in producers)

    def _read(self, partition: int, isolation: int) -> Any:
        wanted = {self._topic: [fetch_partition(partition=partition)]}
        [answer] = self.script.ask(fetch(wanted, isolation_level=isolation), 12).responses[0].partitions
        headers = [batch.header for batch in read_batches(bytes(answer.records or b""), with_control=True)]
        batches = [(each.base_offset, each.is_control, self._number(each.producer_id)) for each in headers]
        aborted = [(self._number(each.producer_id), each.first_offset) for each in answer.aborted_transactions or ()]
        return answer.error_code, answer.high_watermark, answer.last_stable_offset, batches, aborted


Step = tuple[str, tuple[Any, ...]]


def random_steps(choices: random.Random) -> list[Step]:
    """Mostly what a client would do, and now and then what it should not."""

    def who() -> Who:
        return Who(choices.choice([-1, -1, -1, -1, -2, 0]), choices.choice([*[0] * 10, -1]))

    def partition() -> int:
        return choices.choice(PARTITIONS)

    makers: dict[Callable[..., Any], tuple[float, Callable[[], tuple[Any, ...]]]] = {
        Side.begin: (2, lambda: (choices.choice([None, None, who()]),)),
        Side.add: (3, lambda: (who(), partition())),
        Side.write: (6, lambda: (who(), partition(), choices.choice([0, 0, 0, 1, 1, 2]))),
        Side.end: (6, lambda: (who(), choices.random() < 0.6)),
        Side.add_offsets: (1, lambda: (who(),)),
        Side.commit_offsets: (4, lambda: (who(), partition(), choices.randrange(50))),
        Side.commit: (1, lambda: (partition(), choices.randrange(50))),
        Side.fetch_offsets: (2, lambda: (choices.random() < 0.5,)),
        Side.delete_offsets: (0.7, lambda: (partition(),)),
        Side.delete_group: (0.5, lambda: ()),
        Side.list_group: (1, lambda: ()),
    }
    kinds = choices.choices(list(makers), [weight for weight, _ in makers.values()], k=STEPS)
    return [("begin", (None,)), *((kind.__name__, makers[kind][1]()) for kind in kinds)]


def compare(addresses: list[tuple[str, int]], seed: int) -> str | None:
    """The first difference of one round, with what came before it."""
    choices = random.Random(seed)
    versions, steps = choices.choice(VERSIONS), random_steps(choices)
    sides = [Side(address, f"{time.monotonic_ns():016x}", versions) for address in addresses]
    told = [f"{versions}"]
    try:
        for name, arguments in steps:
            answers = [(getattr(side, name)(*arguments), side.state()) for side in sides]
            told.append(f"{name}{arguments}: {answers[0]}")
            if answers[0] != answers[1]:
                return "\n".join([*told[-SHOWN_STEPS:], f"Ottla: {answers[1]}"])
        kafka, ottla = (side.records() for side in sides)
        return None if kafka == ottla else "\n".join([*told, f"Apache Kafka: {kafka}", f"Ottla: {ottla}"])
    finally:
        for side in sides:
            side.script.__exit__()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    different = 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ApacheKafka(Path(folder), PROPERTIES) as kafka,
        running_ottla() as ottla,
    ):
        host, _, port = kafka.bootstrap.partition(":")
        addresses = [(host, int(port)), ottla.address]
        await_coordinator(addresses[0])
        for seed in range(options.seed, options.seed + options.rounds):
            difference = compare(addresses, seed)
            if difference is not None:
                different += 1
                print(f"seed {seed}\n{difference}\n", flush=True)
    print(f"{different} of {options.rounds} rounds from seed {options.seed} differ")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
