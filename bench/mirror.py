"""What it costs to copy a record to another cluster: batches as they are, and record by record with the same client.

CPU time of the process that copies; the two brokers are processes of their own. Then whole mirrors, ours and
MirrorMaker 2, on the same two brokers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.broker_servers import Ottla, servers
from bench.mirror_maker import measure, mirror_maker, ours
from bench.report import Result, spread_of
from ottla.client import (
    LATEST,
    Admin,
    BatchReader,
    BrokerUnreachable,
    NewRecord,
    NewTopic,
    Producer,
    Reader,
    TopicPartition,
)
from ottla.connect.source_work import TRANSACTION_BYTES
from ottla.records.read import Batch

TOPIC = "orders"
SOURCE, COPY = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 0)
Copy = Callable[[str, str, int, str], None]
RECORDS, QUICK_RECORDS = 400_000, 20_000
TIMES, WHOLE_TIMES = 4, 2
"""So many times these records: to open and to close the clients takes as long as to copy 100,000 of them."""
WHOLE_REPEATS = 3


@contextmanager
def running_broker() -> Iterator[str]:
    with servers([Ottla]) as [server]:
        server.start()
        bootstrap = f"127.0.0.1:{server.port}"
        while server.process.poll() is None and not _has_topic(bootstrap):
            time.sleep(0.05)
        yield bootstrap


def _has_topic(bootstrap: str) -> bool:
    """Whether it is there, and has the topic now."""
    try:
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 1)])
    except BrokerUnreachable:
        return False
    return True


def as_they_are(source: str, target: str, count: int, _codec: str) -> None:
    copied = 0
    with BatchReader(source) as reader, Producer(target, transactional_id="batches") as producer:
        reader.assign({SOURCE: 0})
        while copied < count:
            batches: list[Batch] = []
            size_bytes = 0
            while copied < count and size_bytes < TRANSACTION_BYTES:
                found = [batch for data in reader.poll() for batch in data.visible(check_crc=False)]
                copied += sum(batch.header.count for batch in found)
                size_bytes += sum(batch.header.size for batch in found)
                batches += found
            with producer.transaction():
                producer.send_batches([(COPY, batch) for batch in batches])


def record_by_record(source: str, target: str, count: int, codec: str) -> None:
    with (
        Reader(source, TOPIC, [0], end=count) as reader,
        Producer(target, transactional_id="records", codec=codec) as producer,
    ):
        for fetched in reader:
            with producer.transaction():
                producer.send_many(
                    TOPIC,
                    [NewRecord(one.value, one.key, one.headers, 0, one.timestamp) for one in fetched.records],
                )


def _cpu_seconds(copy: Copy, source: str, target: str, count: int, codec: str) -> float:
    started = time.process_time()
    copy(source, target, count, codec)
    return time.process_time() - started


def run(quick: bool) -> list[Result]:
    count = QUICK_RECORDS if quick else RECORDS
    results = []
    for codec in ("none", "lz4"):
        with running_broker() as source, running_broker() as target:
            _fill(source, codec, count, TIMES)
            copied = TIMES * count
            rows = {"batches as they are": as_they_are, "record by record": record_by_record}
            samples: dict[str, list[float]] = {name: [] for name in rows}
            for _ in range(3 if quick else 5):
                for name, copy in rows.items():
                    samples[name].append(_cpu_seconds(copy, source, target, copied, codec) / copied)
            for name, seconds in samples.items():
                results.append(Result.of(f"100 B, {codec}, {name}", spread_of(seconds), "us", scale=1e6))
            ratios = [ours / theirs for ours, theirs in zip(*samples.values(), strict=True)]
            results.append(Result.of(f"100 B, {codec}, of record by record", spread_of(ratios), "times", "< 0.1"))
            with Admin(target) as admin:
                assert admin.find_offsets(TOPIC, LATEST)[0] >= copied
        results += _whole_mirrors(codec, count)
    return results


def _fill(bootstrap: str, codec: str, count: int, times: int) -> None:
    value = os.urandom(50) * 2
    with Producer(bootstrap, codec=codec) as producer:
        for _ in range(times):
            producer.send_many(TOPIC, [NewRecord(value, b"%d" % number, (), 0) for number in range(count)])


def _whole_mirrors(codec: str, count: int) -> Iterator[Result]:
    """From the first records that are copied to the last; a mirror is not alone with the copying, it looks around."""
    for name, mirror in (("ottla mirror run", ours), ("MirrorMaker 2", mirror_maker)):
        samples = []
        for _ in range(WHOLE_REPEATS):
            with running_broker() as source, running_broker() as target:
                _fill(source, codec, count, WHOLE_TIMES)
                with mirror(source, target, TOPIC) as process_id:
                    if process_id is None:
                        return
                    samples.append(measure(process_id, target, TOPIC, WHOLE_TIMES * count))
        seconds, cpu = zip(*samples, strict=True)
        rates = spread_of([1 / each for each in seconds])
        yield Result.of(f"100 B, {codec}, {name}", rates, "records/s")
        yield Result.of(f"100 B, {codec}, {name}, CPU a record", spread_of(list(cpu)), "us", scale=1e6)
