"""Records come back as they were written, whichever client wrote them and whichever reads."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.records.batch import read_header
from ottla.testing import LocalBroker
from tests.compat.client import AdminClient, Client, Fetched, Record
from tests.compat.confluent_client import ConfluentClient
from tests.compat.kcat_client import KcatClient
from tests.compat.samples import FIRST_MS, NULL_AND_EMPTY, PLAIN, STEP_MS, numbered

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
ALL, LEADER, NONE = -1, 1, 0


def numbered_from(first_offset: int, records: Sequence[Record]) -> list[Fetched]:
    return [Fetched(offset, record) for offset, record in enumerate(records, first_offset)]


def as_written(client: Client, fetched: Sequence[Fetched], since_ms: int) -> list[Fetched]:
    """kcat leaves the time of a record to its clock: what is as late as the writing passes for what was asked."""
    if not isinstance(client, KcatClient):
        return list(fetched)
    assert all(since_ms <= record.timestamp_ms <= time.time() * 1000 for _, record in fetched)
    return [
        Fetched(offset, record._replace(timestamp_ms=FIRST_MS + number * STEP_MS))
        for number, (offset, record) in enumerate(fetched)
    ]


def codec_on_disk(broker: LocalBroker, topic: str) -> int:
    return read_header(Path(broker.folder, f"{topic}-0", f"{0:020}.log").read_bytes()).codec


@pytest.mark.parametrize("codec", CODECS)
def test_what_one_client_writes_all_read_alike(
    client: Client, readers: dict[str, Client], broker: LocalBroker, created_topic: str, codec: str
) -> None:
    since_ms = int(time.time() * 1000)
    client.write(created_topic, 0, PLAIN, codec=codec, acks=ALL)
    assert codec_on_disk(broker, created_topic) == CODECS.index(codec)
    read = {name: reader.read(created_topic, 0, 0, len(PLAIN)) for name, reader in readers.items()}
    first = next(iter(read.values()))
    assert read == dict.fromkeys(readers, first)
    assert as_written(client, first, since_ms) == numbered_from(0, PLAIN)


@pytest.mark.parametrize("acks", [ALL, LEADER, NONE])
def test_every_kind_of_acknowledgement(client: Client, created_topic: str, acks: int) -> None:
    since_ms = int(time.time() * 1000)
    client.write(created_topic, 0, PLAIN, codec="none", acks=acks)
    assert as_written(client, client.read(created_topic, 0, 0, len(PLAIN)), since_ms) == numbered_from(0, PLAIN)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_null_is_not_empty(admin: AdminClient, created_topic: str, codec: str) -> None:
    admin.write(created_topic, 0, NULL_AND_EMPTY, codec=codec, acks=ALL)
    assert admin.read(created_topic, 0, 0, len(NULL_AND_EMPTY)) == numbered_from(0, NULL_AND_EMPTY)


def test_a_header_may_be_null(admin: AdminClient, creator: ConfluentClient, created_topic: str) -> None:
    """Not every client can write it, but all can read it."""
    records = [Record(None, b"value", FIRST_MS, (("null", None), ("empty", b"")))]
    creator.write(created_topic, 0, records, codec="none", acks=ALL)
    assert admin.read(created_topic, 0, 0, 1) == numbered_from(0, records)


@pytest.fixture(scope="module")
def filled_topic(creator: ConfluentClient) -> str:
    """A topic with 100 records in 5 batches of different codecs."""
    topic, records = "filled", numbered(100)
    creator.create_topic(topic, 1, {})
    for number, codec in enumerate(CODECS):
        creator.write(topic, 0, records[number * 20 : number * 20 + 20], codec=codec, acks=ALL)
    return topic


def test_reading_from_any_offset(client: Client, filled_topic: str) -> None:
    """Also from the middle of a batch, compressed or not."""
    records = numbered(100)
    for offset in (0, 19, 20, 50, 99):
        fetched = client.read(filled_topic, 0, offset, 100 - offset)
        assert fetched == numbered_from(offset, records[offset:])


def test_offsets_by_time(client: Client, filled_topic: str) -> None:
    times_ms = {0: 0, FIRST_MS: 0, FIRST_MS + 1: 1, FIRST_MS + 50 * STEP_MS: 50, FIRST_MS + 98 * STEP_MS + 1: 99}
    found = {timestamp_ms: client.offset_at(filled_topic, 0, timestamp_ms) for timestamp_ms in times_ms}
    assert found == times_ms
    assert client.offset_at(filled_topic, 0, FIRST_MS + 99 * STEP_MS + 1) is None


def test_first_and_last_offset(client: Client, filled_topic: str) -> None:
    assert client.offsets(filled_topic, 0) == (0, 100)


def test_nearly_a_megabyte(admin: AdminClient, created_topic: str) -> None:
    records = [Record(b"key", bytes([number]) * 9_000, FIRST_MS + number) for number in range(100)]
    admin.write(created_topic, 0, records, codec="none", acks=ALL)
    assert admin.read(created_topic, 0, 0, 100) == numbered_from(0, records)
