"""Several batches with one write: the log is the same as if each had been appended alone."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.log.errors import StaleLeaderEpoch, StorageFailed
from ottla.log.log import Log
from ottla.records.build import build_batch
from ottla.testing.files import Effect, SimulatedFiles
from tests.log.expected import check_segments
from tests.log.writing import append, new_log, served_batches, served_values

one_batch = st.tuples(st.lists(st.binary(max_size=300), min_size=1, max_size=3), st.integers(0, 5000))


def build(values: list[bytes], timestamp: int) -> bytearray:
    return build_batch(values, timestamp=timestamp)


def write(log: Log, batches: list[bytearray], epoch: int = 0) -> int:
    return log.write(bytearray().join(batches), (), epoch, 0)


def whole(log: Log) -> list[bytes]:
    return [bytes(batch.bytes) for batch in served_batches(log)]


@given(st.lists(st.lists(one_batch, min_size=1, max_size=6), max_size=6))
def test_batches_that_are_written_together_are_as_good_as_alone(runs: list[list[tuple[list[bytes], int]]]) -> None:
    together, apart = new_log(), new_log()
    for run in runs:
        first = write(together, [build(*each) for each in run], epoch=2)
        offsets = [append(apart, values, timestamp=at, epoch=2).base_offset for values, at in run]
        assert first == offsets[0]
    assert whole(together) == whole(apart)
    assert (together.end_offset, together.epochs.entries) == (apart.end_offset, apart.epochs.entries)
    largest = max((segment.max_timestamp, segment.max_timestamp_offset) for segment in together.segments)
    assert largest[0] == max(segment.max_timestamp for segment in apart.segments)
    check_segments(together)


def test_what_is_written_together_goes_into_the_next_segment_if_it_does_not_fit() -> None:
    log = new_log()
    append(log, [b"x" * 3500])
    write(log, [build([b"y" * 400], 1), build([b"z" * 400], 1)])
    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert served_values(log) == [b"x" * 3500, b"y" * 400, b"z" * 400]


def test_of_a_write_that_fails_nothing_is_there() -> None:
    files = SimulatedFiles()
    log = new_log(files)
    append(log, [b"before"])
    files.arm(files.operation_count + 1, Effect.TEAR, errno.ENOSPC)
    with pytest.raises(StorageFailed):
        write(log, [build([b"a"], 1), build([b"b"], 1)])
    append(log, [b"after"])
    assert served_values(log) == [b"before", b"after"]


def test_a_replaced_leader_writes_nothing() -> None:
    log = new_log()
    append(log, epoch=3)
    with pytest.raises(StaleLeaderEpoch):
        write(log, [build([b"late"], 1)], epoch=2)
    log.failure = "the disk is gone"
    with pytest.raises(StorageFailed):
        write(log, [build([b"lost"], 1)], epoch=3)
    assert log.end_offset == 1
