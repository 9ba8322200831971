"""Large batches and bombs: taken or refused with little memory, in short steps."""

import tracemalloc
from random import Random

import pytest

from ottla.records.batch import HEADER_SIZE, read_header, stamp_crc
from ottla.records.build import build_batch, finish_batch
from ottla.records.codec import encode_columns
from ottla.records.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ottla.records.large import MOST_BATCH_RATIO, MOST_RECORD_RATIO, validate_large
from ottla.records.pieces import PIECE_BYTES
from ottla.records.read import read_records
from ottla.records.validate import InvalidRecords, LargeBatch, ProduceSettings
from ottla.wire.errors import ErrorCode
from tests.records.test_validate import validate

SMALL = 100_000  # max.message.bytes of a topic that is easily too small


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_bomb_is_too_large(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.records.validate.AT_ONCE_BYTES", SMALL)
    settings = ProduceSettings(max_message_bytes=SMALL)
    fitting = bytes(SMALL * MOST_RECORD_RATIO - 100)
    assert validate(build_batch([fitting], timestamp=0, codec=codec), settings)
    record_bomb = [bytes(SMALL * MOST_RECORD_RATIO)]
    batch_bomb = [fitting] * (MOST_BATCH_RATIO // MOST_RECORD_RATIO + 1)  # which snappy cannot make small enough
    for bomb in (record_bomb, batch_bomb):
        with pytest.raises(InvalidRecords) as refused:
            validate(build_batch(bomb, timestamp=0, codec=codec), settings)
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_large_batch_is_looked_at_in_short_steps_with_little_memory(codec: int) -> None:
    batch = build_batch([bytes(1000)] * 40_000, timestamp=0, codec=codec)
    steps = 0
    tracemalloc.start()
    try:
        validating = validate_large(
            LargeBatch(memoryview(batch), read_header(batch)), ProduceSettings(), partition="t-0", now_ms=0
        )
        for _ in validating:
            steps += 1
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert steps >= 40_000 * 1000 / (2 * PIECE_BYTES)
    assert most_bytes < 8 * PIECE_BYTES + len(batch)


def test_what_is_wrong_in_compressed_bytes_is_told_in_the_same_way_at_once_and_in_steps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Apache Kafka does, which looks at records as they come out: gzip finds out at the end that all was wrong."""

    def code() -> ErrorCode:
        with pytest.raises(InvalidRecords) as refused:
            validate(bytearray(damaged))
        return refused.value.code

    random = Random(1)
    values = [bytes(random.choices(b"abcdefghijklm", k=200)) for _ in range(300)]
    batch = build_batch(values, timestamp=0, codec=GZIP)
    codes = []
    for position in range(HEADER_SIZE + 10, len(batch) - 8, 501):
        damaged = bytearray(batch)
        damaged[position] ^= 1
        stamp_crc(damaged, 0, len(damaged))
        codes.append(code())
        with monkeypatch.context() as patched:
            patched.setattr("ottla.records.validate.AT_ONCE_BYTES", 0)
            assert code() == codes[-1]
    assert set(codes) == {ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR}


@pytest.mark.parametrize("count", [100, 6000], ids=["above 32 KB", "above 4 MB"])
@pytest.mark.parametrize(("sent_codec", "codec"), [(NONE, GZIP), (GZIP, NONE), (GZIP, ZSTD), (LZ4, SNAPPY)])
def test_offsets_with_holes_are_closed_where_the_batch_is_compressed_anew(
    count: int, sent_codec: int, codec: int
) -> None:
    """Apache Kafka 4.3.1 does so with batches of any size; in one that keeps its codec it refuses them."""
    values = [b"%d" % number * 200 for number in range(count)]
    deltas = [0, *range(2, count + 1)]
    area = encode_columns(values, None, None, None, deltas, 1000, HEADER_SIZE)
    sent = finish_batch(area, count, count - 1, 1000, 1000, codec=sent_codec)
    settings = ProduceSettings(codec=codec, max_message_bytes=10 << 20)
    stored = validate(sent, settings).batch
    assert read_header(stored).codec == codec
    assert [(record.offset, record.value) for record in read_records(stored)] == list(enumerate(values))
    if sent_codec != NONE:
        with pytest.raises(InvalidRecords) as refused:
            validate(sent, ProduceSettings(max_message_bytes=10 << 20))
        assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
