"""A broker that has no free file descriptors refuses what needs one, and goes on when it has some again."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

from ottla.records.build import build_batch
from ottla.records.read import read_batches
from ottla.wire.errors import ErrorCode
from tests.conformance import requests
from tests.conformance.script import Topic
from tests.faults.broker_process import BrokerProcess
from tests.faults.test_full_disk import Client

SMALL, LARGE = 100, 600_000
INDEXED = 4200  # so large that each gets an entry in the indexes
MOST_FREE = 6  # what a new segment and its sync need together


@contextlib.contextmanager
def few_free_files(process_id: int, count: int) -> Iterator[None]:
    """Let a process have so many free descriptors."""
    before = resource.prlimit(process_id, resource.RLIMIT_NOFILE)
    taken = {int(path.name) for path in Path(f"/proc/{process_id}/fd").iterdir()}
    free = [number for number in range(len(taken) + count + 1) if number not in taken]
    limit = free[count]  # descriptors are numbers below it
    resource.prlimit(process_id, resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process_id, resource.RLIMIT_NOFILE, before)


def write(client: Client, topic: Topic, size_bytes: int, timestamp: int = 1) -> int:
    batch = build_batch([bytes(size_bytes)], timestamp=timestamp)
    code: int = client.ask(requests.produce(topic, batch, acks=-1)).responses[0].partition_responses[0].error_code
    return code


def make_topics(client: Client, count: int, settings: dict[str, str] | None = None) -> list[Topic]:
    names = [f"t{number}" for number in range(count)]
    configs = list(({"segment.bytes": "1048576"} if settings is None else settings).items())
    client.ask(requests.create_topics(*[requests.creatable(name, configs=configs) for name in names]))
    return [Topic(found.name, found.topic_id) for found in client.ask(requests.metadata(*names)).topics]


def test_a_log_that_could_not_be_synced_for_want_of_descriptors_goes_on(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "data", "--durability", "fsync") as broker,
        contextlib.closing(Client(broker)) as client,
    ):
        topics = make_topics(client, MOST_FREE + 1)
        codes = [write(client, topic, SMALL) for topic in topics]
        assert set(codes) == {0}
        refused = set()
        for free, topic in enumerate(topics):
            with few_free_files(broker.process_id, free):
                refused |= {write(client, topic, LARGE) for _ in range(3)}
        assert refused == {0, ErrorCode.KAFKA_STORAGE_ERROR}
        assert [write(client, topic, SMALL) for topic in topics] == [0] * len(topics)


def test_of_several_partitions_those_are_served_that_can_be_opened(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker, contextlib.closing(Client(broker)) as client:
        topics = make_topics(client, 2)
        assert [write(client, topic, SMALL) for topic in topics] == [0, 0]
        broker.errors()
    with BrokerProcess(tmp_path / "data") as broker, contextlib.closing(Client(broker)) as client:
        client.ask(requests.fetch_from(topics[0]))
        client.ask(requests.list_offsets(topics[0], 0))
        assert write(client, topics[0], SMALL) == 0
        both = requests.fetch({topic: [requests.fetch_partition()] for topic in topics})
        with few_free_files(broker.process_id, 0):
            codes = [found.partitions[0].error_code for found in client.ask(both).responses]
            found = client.ask(requests.list_offsets(topics[1], 0)).topics[0].partitions[0]
            refused = write(client, topics[1], SMALL)
        assert [*codes, found.error_code] == [0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]
        assert refused == ErrorCode.KAFKA_STORAGE_ERROR
        assert write(client, topics[1], SMALL) == 0
        assert [found.partitions[0].error_code for found in client.ask(both).responses] == [0, 0]


def test_a_record_that_was_written_counts_though_its_index_cannot_be_read(tmp_path: Path) -> None:
    """Or the next one gets the same offset, and the first crash cuts the log before it."""
    with BrokerProcess(tmp_path / "data") as broker, contextlib.closing(Client(broker)) as client:
        (topic,) = make_topics(client, 1, {})
        index = tmp_path / "data" / "t0-0" / "00000000000000000000.timeindex"
        written = 0
        while not (index.exists() and index.stat().st_size):  # so far its entries are in memory
            assert write(client, topic, INDEXED, timestamp=written) == 0
            written += 1
        with few_free_files(broker.process_id, 0):
            taken = [write(client, topic, INDEXED, timestamp=written + number) for number in range(3)]
        assert taken == [0, 0, 0]
        broker.kill()
    with BrokerProcess(tmp_path / "data") as broker, contextlib.closing(Client(broker)) as client:
        latest = client.ask(requests.list_offsets(topic, -1)).topics[0].partitions[0]
        assert latest.offset == written + 3


def test_a_log_of_very_many_segments_takes_few_descriptors(tmp_path: Path) -> None:
    """Those of its full segments are bounded, and their indexes have none, whoever reads all of it."""
    segments, most_files = 600, 560
    with BrokerProcess(tmp_path / "data") as broker, contextlib.closing(Client(broker)) as client:
        (topic,) = make_topics(client, 1, {"internal.segment.bytes": str(2 * INDEXED + 200)})
        for number in range(2 * segments):
            assert write(client, topic, INDEXED, timestamp=number) == 0
        broker.errors()
    with BrokerProcess(tmp_path / "data") as broker, contextlib.closing(Client(broker)) as client:
        offset = 0
        while offset < 2 * segments:
            fetched = client.ask(requests.fetch_from(topic, offset)).responses[0].partitions[0]
            offset = [batch.header.next_offset for batch in read_batches(fetched.records)][-1]
            client.ask(requests.list_offsets(topic, offset))
        assert len(list((tmp_path / "data" / "t0-0").glob("*.log"))) == segments
        assert len(list(Path(f"/proc/{broker.process_id}/fd").iterdir())) < most_files
