"""Produce: what is appended, and every way in which it is not."""

from __future__ import annotations

import struct
import time
from typing import NamedTuple

from ottla.records import batch as at
from ottla.records.build import build_batch
from ottla.records.compression import GZIP, LZ4, NAMES, SNAPPY, ZSTD, compress
from ottla.wire.uuids import ZERO_UUID
from tests.conformance.batches import patched, plain, sequenced, with_area
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import UNKNOWN, delete_topics, fetch_from, produce, produce_many
from tests.conformance.script import TIMESTAMP_MS, Script, Topic

exchanges = Exchanges("produce")

VERSIONS = (3, 5, 7, 8, 9, 10, 12, 13)
PRODUCER_ID = 77_000


def append_and_read(script: Script, topic: Topic, batch: bytearray, version: int = 12) -> None:
    script.send(produce(topic, batch), version)
    script.send(fetch_from(topic), 12)


@exchanges.versions(VERSIONS)
def three_records_are_appended(script: Script, version: int) -> None:
    append_and_read(script, script.topic(), plain(), version)


@exchanges.versions(VERSIONS)
def a_topic_that_is_not_there(script: Script, version: int) -> None:
    script.send(produce(UNKNOWN, plain()), version)


@exchanges.cases({"0": 0, "1": 1, "2": 2})
def a_version_that_is_advertised_and_not_served(script: Script, version: int) -> None:
    body = struct.pack(">hii", 1, 5000, 0)
    frame = struct.pack(">hhih", 0, version, 1, -1) + body
    script.send_bytes(f"Produce {version}", struct.pack(">i", len(frame)) + frame)


@exchanges.cases({"all": -1, "leader": 1, "two": 2, "minus two": -2, "32767": 32767})
def acks(script: Script, acks: int) -> None:
    script.send(produce(script.topic(), plain(), acks=acks))


@exchanges.cases({"appended": True, "to a topic that is not there": False})
def no_acks(script: Script, is_there: bool) -> None:
    topic = script.topic()
    script.send_silent(produce(topic if is_there else UNKNOWN, plain(), acks=0), 12)
    script.send(fetch_from(topic), 12)


@exchanges.one
def no_acks_and_a_wrong_checksum(script: Script) -> None:
    topic = script.topic()
    script.send_silent(produce(topic, patched(plain(), at.CRC_AT, ">I", 1, stamp=False), acks=0), 12)
    script.send(fetch_from(topic), 12)


@exchanges.one
def answers_come_in_the_order_of_requests(script: Script) -> None:
    topic = script.topic()
    pending = [script.begin(produce(topic, plain(count)), 12) for count in (1, 2, 3, 4)]
    for one in pending:
        script.finish(one)


BAD_TARGETS = {
    "an unknown partition": (None, 7),
    "partition -1": (None, -1),
    "an empty name": (Topic("", ZERO_UUID), 0),
    "a name with a slash": (Topic("a/b", ZERO_UUID), 0),
    "a name of two dots": (Topic("..", ZERO_UUID), 0),
    "a name that is too long": (Topic("x" * 250, ZERO_UUID), 0),
}


@exchanges.cases(BAD_TARGETS)
def a_bad_target(script: Script, target: tuple[Topic | None, int]) -> None:
    topic, partition = target
    script.send(produce(topic or script.topic(), plain(), partition=partition), 12)


@exchanges.cases({"zero": ZERO_UUID, "unknown": UNKNOWN.id})
def a_bad_topic_id(script: Script, topic_id: bytes) -> None:
    script.send(produce(Topic("", topic_id), plain()), 13)


@exchanges.one
def the_id_of_a_deleted_topic(script: Script) -> None:
    topic = script.topic()
    script.ask(delete_topics(topic.name))
    script.settle(
        produce(topic, plain()), 13, until=lambda answer: answer.responses[0].partition_responses[0].error_code != 0
    )


def area_of(batch: bytearray) -> bytes:
    return bytes(batch[at.HEADER_SIZE :])


BAD_BATCHES: dict[str, bytes | bytearray] = {
    "nothing": b"",
    "twenty zero bytes": bytes(20),
    "a hundred zero bytes": bytes(100),
    "shorter than a header": plain()[:60],
    "cut in its header": plain()[:17],
    "cut by one byte": plain()[:-1],
    "a byte too many": plain() + b"\0",
    "two batches": plain() + plain(),
    "a wrong checksum": patched(plain(), at.CRC_AT, ">I", 1, stamp=False),
    "a flipped bit in the records": plain()[:-1] + b"!",
    "magic 0": patched(plain(), at.MAGIC_AT, ">b", 0),
    "magic 1": patched(plain(), at.MAGIC_AT, ">b", 1),
    "magic 3": patched(plain(), at.MAGIC_AT, ">b", 3),
    "magic -1": patched(plain(), at.MAGIC_AT, ">b", -1),
    "a length of 0": patched(plain(), at.LENGTH_AT, ">i", 0, stamp=False),
    "a length below the least": patched(plain(), at.LENGTH_AT, ">i", 48, stamp=False),
    "a negative length": patched(plain(), at.LENGTH_AT, ">i", -1, stamp=False),
    "a length beyond the end": patched(plain(), at.LENGTH_AT, ">i", 10_000, stamp=False),
    "a base offset of 5": plain(base_offset=5),
    "a negative base offset": plain(base_offset=-1),
    "a last offset delta too high": patched(plain(), at.LAST_OFFSET_DELTA_AT, ">i", 3),
    "a last offset delta too low": patched(plain(), at.LAST_OFFSET_DELTA_AT, ">i", 1),
    "a negative last offset delta": patched(plain(), at.LAST_OFFSET_DELTA_AT, ">i", -1),
    "a count too high": patched(plain(), at.COUNT_AT, ">i", 4),
    "a count too low": patched(plain(), at.COUNT_AT, ">i", 2),
    "a count of 0": patched(plain(), at.COUNT_AT, ">i", 0),
    "a negative count": patched(plain(), at.COUNT_AT, ">i", -1),
    "a count and delta too high": patched(patched(plain(), at.COUNT_AT, ">i", 4), at.LAST_OFFSET_DELTA_AT, ">i", 3),
    "a count and delta too low": patched(patched(plain(), at.COUNT_AT, ">i", 2), at.LAST_OFFSET_DELTA_AT, ">i", 1),
    "no records, count 0, delta -1": plain(0),
    "bytes behind the last record": with_area(plain(), area_of(plain()) + b"\0\0"),
    "a record cut short": with_area(plain(1), area_of(plain(1))[:-1]),
    "a record of negative length": with_area(plain(1), b"\x01" + area_of(plain(1))[1:]),
    "offset deltas that are all 0": with_area(plain(3), area_of(plain(1)) * 3),
    "a control batch": plain(1, is_control=True),
    "a transactional batch without a transactional id": sequenced(PRODUCER_ID, 0, is_transactional=True),
    "a transactional batch without a producer id": plain(1, is_transactional=True),
    "codec 5": patched(plain(), at.ATTRIBUTES_AT, ">h", 5),
    "codec 7": patched(plain(), at.ATTRIBUTES_AT, ">h", 7),
    "gzip that is none": patched(plain(), at.ATTRIBUTES_AT, ">h", GZIP),
    "snappy that is none": patched(plain(), at.ATTRIBUTES_AT, ">h", SNAPPY),
    "lz4 that is none": patched(plain(), at.ATTRIBUTES_AT, ">h", LZ4),
    "zstd that is none": patched(plain(), at.ATTRIBUTES_AT, ">h", ZSTD),
    "unused attributes": patched(plain(), at.ATTRIBUTES_AT, ">h", 0x7F80),
    "the bit of a delete horizon": patched(plain(), at.ATTRIBUTES_AT, ">h", at.DELETE_HORIZON),
    "a leader epoch of 9": plain(leader_epoch=9),
    "the bit of log append time": patched(plain(), at.ATTRIBUTES_AT, ">h", at.LOG_APPEND_TIME),
    "a highest timestamp that is wrong": patched(plain(), at.MAX_TIMESTAMP_AT, ">q", TIMESTAMP_MS + 5),
    "a producer id without a sequence": plain(1, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=-1),
    "a sequence without a producer id": plain(1, base_sequence=0),
    "a producer id without an epoch": plain(1, producer_id=PRODUCER_ID, producer_epoch=-1, base_sequence=0),
    "a producer id of -2": plain(1, producer_id=-2, producer_epoch=0, base_sequence=0),
    "a sequence of -2": plain(1, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=-2),
}


@exchanges.cases(BAD_BATCHES)
def an_odd_batch(script: Script, batch: bytes | bytearray) -> None:
    append_and_read(script, script.topic(), bytearray(batch))


@exchanges.cases({"the offset deltas of gzip records": GZIP, "of zstd records": ZSTD})
def compressed_records_with_wrong(script: Script, codec: int) -> None:
    area = bytes(compress(codec, area_of(plain(1)) * 3))
    append_and_read(script, script.topic(), with_area(plain(3, codec=codec), area))


@exchanges.cases({"a count too high": 4, "a count too low": 2})
def gzip_records_with(script: Script, count: int) -> None:
    batch = patched(plain(3, codec=GZIP), at.COUNT_AT, ">i", count)
    append_and_read(script, script.topic(), patched(batch, at.LAST_OFFSET_DELTA_AT, ">i", count - 1))


@exchanges.one
def null_records(script: Script) -> None:
    script.send(produce(script.topic(), None), 12, within_s=1.0)


@exchanges.cases({name: number for number, name in enumerate(NAMES)})
def a_codec(script: Script, codec: int) -> None:
    append_and_read(script, script.topic(), plain(codec=codec))


@exchanges.cases({name: number for number, name in enumerate(NAMES)})
def a_codec_in_version_6(script: Script, codec: int) -> None:
    script.send(produce(script.topic(), plain(codec=codec)), 6)


@exchanges.cases({name: name for name in ("uncompressed", *NAMES[1:], "producer")})
def compression_by_the_topic(script: Script, codec: str) -> None:
    topic = script.topic(configs={"compression.type": codec})
    append_and_read(script, topic, plain(codec=LZ4))


@exchanges.cases({"too low by one": -1, "just right": 0})
def max_message_bytes(script: Script, margin_bytes: int) -> None:
    batch = plain(3)
    topic = script.topic(configs={"max.message.bytes": str(len(batch) + margin_bytes)})
    script.send(produce(topic, batch))


@exchanges.one
def a_batch_above_the_default_limit(script: Script) -> None:
    topic = script.topic()
    script.send(produce(topic, build_batch([bytes(1_048_588)], timestamp=TIMESTAMP_MS)))
    script.send(produce(topic, plain(1)))


@exchanges.cases({"null keys": None, "keys": b"key", "empty keys": b""})
def a_compacted_topic(script: Script, key: bytes | None) -> None:
    topic = script.topic(configs={"cleanup.policy": "compact"})
    append_and_read(script, topic, plain(3, key=key))


class Times(NamedTuple):
    """Of a record, from now, and the limits of its topic."""

    shift_ms: int
    configs: dict[str, str]


HOUR_MS = 3_600_000
TIMES = {
    "two hours ahead": Times(2 * HOUR_MS, {}),
    "half an hour ahead": Times(HOUR_MS // 2, {}),
    "two hours ahead where that is allowed": Times(2 * HOUR_MS, {"message.timestamp.after.max.ms": str(3 * HOUR_MS)}),
    "long ago": Times(-365 * 24 * HOUR_MS, {}),
    "two hours ago where one is allowed": Times(-2 * HOUR_MS, {"message.timestamp.before.max.ms": str(HOUR_MS)}),
    "two hours ahead by log append time": Times(2 * HOUR_MS, {"message.timestamp.type": "LogAppendTime"}),
}


@exchanges.cases(TIMES)
def a_timestamp(script: Script, times: Times) -> None:
    now_ms = time.time_ns() // 1_000_000
    topic = script.topic(configs=times.configs)
    batch = plain(2, timestamps=[now_ms + times.shift_ms, now_ms])
    script.send(produce(topic, batch))


@exchanges.cases({"-1": -1, "-2": -2, "0": 0, "the least": -(2**63)})
def a_timestamp_of(script: Script, timestamp: int) -> None:
    append_and_read(script, script.topic(), plain(1, timestamp=timestamp))


@exchanges.cases({"none": 0, "gzip": GZIP})
def log_append_time(script: Script, codec: int) -> None:
    topic = script.topic(configs={"message.timestamp.type": "LogAppendTime"})
    append_and_read(script, topic, plain(codec=codec))


@exchanges.one
def log_append_time_and_a_repeated_batch(script: Script) -> None:
    topic = script.topic(configs={"message.timestamp.type": "LogAppendTime"})
    for _ in range(2):
        script.send(produce(topic, sequenced(PRODUCER_ID, 0)))


@exchanges.one
def two_in_sync_replicas_are_asked_for_and_one_is_there(script: Script) -> None:
    script.send(produce(script.topic(configs={"min.insync.replicas": "2"}), plain(), acks=-1))


@exchanges.one
def a_plain_batch_with_a_transactional_id(script: Script) -> None:
    script.send(produce(script.topic(), plain(), transactional_id="nobody"))


@exchanges.one
def one_bad_partition_among_good_ones(script: Script) -> None:
    topic = script.topic(partitions=3)
    bad = patched(plain(), at.CRC_AT, ">I", 1, stamp=False)
    script.send(produce_many([(topic, 0, plain()), (topic, 1, bad), (topic, 2, plain()), (topic, 3, plain())]))


@exchanges.versions((12, 13))
def the_same_partition_twice(script: Script, version: int) -> None:
    topic = script.topic()
    script.send(produce_many([(topic, 0, plain(1)), (topic, 0, plain(2))]), version)
    script.send(fetch_from(topic), 12)


@exchanges.versions((3, 9, 12, 13))
def no_topics(script: Script, version: int) -> None:
    script.send(produce_many([]), version)


class Sent(NamedTuple):
    sequence: int
    epoch: int = 0
    records: int = 1


SEQUENCES = {
    "in order": [Sent(0), Sent(1), Sent(2, records=3), Sent(5)],
    "the first is 5": [Sent(5), Sent(6)],
    "a gap": [Sent(0), Sent(2), Sent(1)],
    "the last again": [Sent(0), Sent(1), Sent(1), Sent(2)],
    "the first of five again": [*map(Sent, range(5)), Sent(0)],
    "the first of six again": [*map(Sent, range(6)), Sent(0), Sent(6)],
    "half of an old batch": [Sent(0, records=4), Sent(0, records=2), Sent(2, records=2), Sent(4)],
    "more than an old batch": [Sent(0, records=2), Sent(0, records=3)],
    "an epoch later from 0": [Sent(0), Sent(1), Sent(0, epoch=1), Sent(1, epoch=1)],
    "an epoch later from 3": [Sent(0), Sent(3, epoch=1), Sent(0, epoch=1)],
    "an old epoch": [Sent(0, epoch=3), Sent(1, epoch=2), Sent(0, epoch=2), Sent(1, epoch=3)],
    "the end of all sequences": [Sent(2**31 - 2), Sent(2**31 - 1), Sent(0), Sent(1)],
    "each of five again": [*map(Sent, range(5)), *map(Sent, range(5)), Sent(5)],
    "an old batch with another length": [Sent(0, records=2), Sent(2, records=2), Sent(0, records=1), Sent(1)],
    "the last of an old epoch again": [Sent(0), Sent(1), Sent(0, epoch=1), Sent(1)],
    "an epoch later and back at the end": [Sent(0, epoch=32767), Sent(1, epoch=32767), Sent(0), Sent(2, epoch=32767)],
    "several epochs later": [Sent(0), Sent(0, epoch=5), Sent(0, epoch=3), Sent(1, epoch=5)],
    "the batch over the end again after more": [
        Sent(2**31 - 2, records=4),
        Sent(2),
        Sent(3),
        Sent(2**31 - 2, records=4),
        Sent(4),
    ],
    "a gap over the end": [Sent(2**31 - 1), Sent(1), Sent(0)],
    "a batch over the end": [Sent(2**31 - 2, records=4), Sent(2), Sent(2**31 - 2, records=4)],
}


@exchanges.cases(SEQUENCES)
def sequences(script: Script, sent: list[Sent]) -> None:
    topic = script.topic()
    for one in sent:
        script.send(produce(topic, sequenced(PRODUCER_ID, one.sequence, epoch=one.epoch, count=one.records)), 12)
    script.send(fetch_from(topic), 12)


@exchanges.one
def two_producers_beside_each_other(script: Script) -> None:
    topic = script.topic()
    for producer_id, sequence in ((1001, 0), (1002, 0), (1001, 1), (1002, 2)):
        script.send(produce(topic, sequenced(producer_id, sequence)))


@exchanges.one
def headers_null_values_and_empty_ones(script: Script) -> None:
    topic = script.topic()
    batch = build_batch(
        [None, b"", b"v"],
        keys=[b"k", None, b""],
        headers=[[], [("h", None), ("h", b"")], [("", b"x")]],
        timestamp=TIMESTAMP_MS,
    )
    append_and_read(script, topic, batch)
