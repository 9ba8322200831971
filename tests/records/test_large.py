"""Large batches and bombs: taken or refused with little memory, in short steps."""

import tracemalloc

import pytest

from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.records.large import MOST_BATCH_RATIO, MOST_RECORD_RATIO, validate_large
from ottla.records.pieces import PIECE_BYTES
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
