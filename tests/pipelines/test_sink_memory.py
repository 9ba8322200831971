"""When a sink writes a batch, when it knows that it is there, and when it refuses."""

from dataclasses import replace

import pytest

from ottla.client import Offset, TopicPartition
from ottla.pipelines.sink.memory import MOST_RUNS, Batch, Memory, SinkRefused, is_written, remember

PLACE = TopicPartition("out", 0)
BATCH = Batch(generation=0, query_id="query", run_id="run", number=7)
MEMORY = Memory(PLACE, generation=0, query_id="query", run_ids=("run",), next_number=7)
LAST = replace(MEMORY, next_number=8, rows=5, plan="plan")
LATER = replace(BATCH, run_id="a later run", rows=5, plan="plan")


@pytest.mark.parametrize(
    ("memory", "batch", "expected"),
    [
        (MEMORY, BATCH, False),
        (replace(MEMORY, next_number=8), BATCH, True),
        (replace(MEMORY, next_number=9), BATCH, True),
        (None, replace(BATCH, number=0), False),
        (MEMORY, replace(BATCH, run_id="a later run"), False),
        (replace(MEMORY, next_number=8), replace(BATCH, run_id="a later run"), True),
        (MEMORY, replace(BATCH, generation=1, query_id="another", number=0), False),
        (MEMORY, replace(BATCH, generation=1), False),
        (replace(MEMORY, next_number=9), replace(BATCH, run_id="a later run", generation=1), False),
        (replace(LAST, rows=None, plan=None), LATER, True),  # of a sink that did not count
        (LAST, LATER, True),
        (LAST, replace(LATER, rows=6), True),  # planned as it was: what is behind that need not give the same twice
        (LAST, replace(LATER, plan=None), True),
        (LAST, replace(BATCH, rows=6, plan="another"), True),  # of the run that has written it
    ],
)
def test_a_batch_is_written_once(memory: Memory | None, batch: Batch, expected: bool) -> None:
    assert is_written(memory, batch, "sink") is expected


@pytest.mark.parametrize(
    ("memory", "batch", "sentence"),
    [
        (None, BATCH, "set option continueFromBatch to 7"),
        (MEMORY, replace(BATCH, query_id="another", number=0), "set option generation to 1"),
        (replace(MEMORY, generation=2), BATCH, "another query has taken over"),
        (replace(MEMORY, run_ids=("run", "a later run")), BATCH, "this one is fenced"),
        (replace(MEMORY, next_number=9), replace(BATCH, run_id="a later run"), "it is an older copy"),
        (LAST, replace(LATER, plan="another"), "it is an older copy"),
        (LAST, replace(LATER, rows=6, plan=None), "continueFromBatch to 8"),
    ],
)
def test_what_could_be_wrong_is_refused(memory: Memory | None, batch: Batch, sentence: str) -> None:
    with pytest.raises(SinkRefused) as refused:
        is_written(memory, batch, "sink")
    assert sentence in str(refused.value)


def test_a_memory_that_is_gone_is_done_without_at_one_batch_alone() -> None:
    assert not is_written(None, BATCH, "sink", continue_from=7)
    with pytest.raises(SinkRefused):
        is_written(None, replace(BATCH, number=8), "sink", continue_from=7)


def test_an_older_copy_goes_on_behind_a_batch_that_was_looked_at() -> None:
    assert is_written(LAST, replace(LATER, plan="another"), "sink", continue_from=8)
    with pytest.raises(SinkRefused):
        is_written(LAST, replace(LATER, plan="another"), "sink", continue_from=7)


def test_the_memory_stays_in_its_place_and_within_its_size() -> None:
    memory: Memory | None = None
    for number in range(3 * MOST_RUNS):
        batch = replace(BATCH, run_id=f"{number:036}", number=number, rows=1 << 40, plan=16 * "f")
        [(place, offset)] = remember(memory, batch, TopicPartition(f"t{number}", 0), "sink").offsets.items()
        assert place == TopicPartition("t0", 0)
        assert isinstance(offset, Offset)
        assert offset.offset == number + 1
        assert len(offset.metadata) < 4096  # offset.metadata.max.bytes
        runs = (*memory.run_ids, batch.run_id)[-MOST_RUNS:] if memory else (batch.run_id,)
        memory = Memory(place, 0, "query", runs, number + 1, 1 << 40, 16 * "f")
        assert memory.offset() == offset
