"""What a topic that has grown in order costs its broker, beside one that had all its partitions from the beginning.

Every keyed record of such a topic is looked at: its key must belong to its partition. CPU time of the broker, by turns.
"""

from __future__ import annotations

import os
import time

from bench.broker_servers import Ottla, Server, servers
from bench.report import Result, spread_of
from ottla.client import LATEST, Admin, BrokerUnreachable, NewRecord, NewTopic, Producer, Reader
from ottla.records.growth import Phase

PARTITIONS = 8
RECORDS, QUICK_RECORDS = 400_000, 40_000
REPEATS = 7
PLAIN, GROWN = "plain", "grown"


def run(quick: bool) -> list[Result]:
    count = QUICK_RECORDS if quick else RECORDS
    results: list[Result] = []
    for codec in ("none", "lz4"):
        with servers([Ottla]) as [server]:
            server.start()
            bootstrap = f"127.0.0.1:{server.port}"
            _make_topics(server, bootstrap)
            value = os.urandom(50) * 2
            records = [NewRecord(value, b"key-%d" % (number % 10_000)) for number in range(count)]
            written: dict[str, list[float]] = {PLAIN: [], GROWN: []}
            read: dict[str, list[float]] = {PLAIN: [], GROWN: []}
            for _ in range(3 if quick else REPEATS):
                for topic in (PLAIN, GROWN):
                    written[topic].append(_write(server, bootstrap, topic, records, codec) / count)
                    read[topic].append(_read(server, bootstrap, topic, count))
            for what, samples in (("written", written), ("read", read)):
                for topic, seconds in samples.items():
                    name = f"100 B, {codec}, {what}, {'grown' if topic == GROWN else 'not grown'}"
                    results.append(Result.of(f"{name}, CPU a record", spread_of(seconds), "us", scale=1e6))
                ratios = [grown / plain for plain, grown in zip(samples[PLAIN], samples[GROWN], strict=True)]
                results.append(Result.of(f"100 B, {codec}, {what}, grown of not grown", spread_of(ratios), "times"))
    return results


def _make_topics(server: Server, bootstrap: str) -> None:
    while True:
        try:
            admin = Admin(bootstrap)
            admin.open()
            break
        except BrokerUnreachable:
            assert server.process.poll() is None
            time.sleep(0.05)
    with admin:
        admin.create_topics([NewTopic(PLAIN, PARTITIONS), NewTopic(GROWN, 2)])
        for count in (4, PARTITIONS):
            admin.expand_in_order({GROWN: count}, quiet_ms=100)
            while admin.describe_growths([GROWN])[GROWN][-1].phase is not Phase.OPEN:
                time.sleep(0.05)


def _write(server: Server, bootstrap: str, topic: str, records: list[NewRecord], codec: str) -> float:
    with Producer(bootstrap, codec=codec) as producer:
        producer.send_many(topic, records[:100])
        begun = server.cpu_seconds()
        producer.send_many(topic, records)
        return server.cpu_seconds() - begun


def _read(server: Server, bootstrap: str, topic: str, count: int) -> float:
    """A record: the last `count` of the topic, with a member's eyes (whole batches)."""
    with Admin(bootstrap) as admin:
        ends = admin.find_offsets(topic, LATEST)
    total = 0
    begun = server.cpu_seconds()
    for index, end in ends.items():
        with Reader(bootstrap, topic, [index], start=max(end - count // PARTITIONS, 0), end=end) as reader:
            for fetched in reader:
                total += len(fetched.records)
    return (server.cpu_seconds() - begun) / max(total, 1)
