"""Where a group goes on in a copy: never behind a record that it has not read."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from ottla.connect.mirror.progress import LATEST_RUNS, MOST_RUNS, PartitionProgress, Progress, Run, TopicProgress


def test_offsets_within_a_run_are_exact() -> None:
    partition = PartitionProgress(0)
    partition.copied(Run(10, 100, 5))
    partition.copied(Run(15, 105, 5))  # behind it, on both sides
    partition.copied(Run(20, 111, 5))  # the end of a transaction lies between
    partition.next_offset = 25
    assert partition.runs == [Run(10, 100, 10), Run(20, 111, 5)]
    assert [partition.translate(offset) for offset in (9, 10, 14, 19, 20, 24, 25)] == [
        None,
        100,
        104,
        109,
        111,
        115,
        116,
    ]
    assert partition.translate(26) is None  # what it has read is not copied yet


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 9), st.integers(0, 3)), min_size=1, max_size=200), st.data()
)
def test_no_unread_record_is_passed_over(steps: list[tuple[int, int, int]], data: st.DataObject) -> None:
    partition = PartitionProgress(0)
    source = target = 0
    copies: dict[int, int] = {}
    for gap, count, markers in steps:
        source, target = source + gap, target + markers
        copies.update((source + number, target + number) for number in range(count))
        partition.copied(Run(source, target, count))
        source, target = source + count, target + count
    partition.next_offset = source
    assert len(partition.runs) <= MOST_RUNS
    offset = data.draw(st.integers(0, source))
    found = partition.translate(offset)
    unread = [copy for original, copy in copies.items() if original >= offset]
    if found is not None and unread:
        assert found <= min(unread)
    if len(steps) <= LATEST_RUNS and found is not None:
        read = [copy for original, copy in copies.items() if original < offset]
        assert all(copy < found for copy in read)  # and nothing that was read comes again


def test_a_document_is_read_as_it_was_written() -> None:
    progress = Progress("cluster")
    topic = progress.topics["orders"] = TopicProgress("eu.orders", "a", "b")
    topic.partitions[3] = PartitionProgress(17, [Run(1, 2, 3)], 5)
    document = json.loads(json.dumps(progress.document()))
    assert Progress.read(document).document() == document
    topic.partitions[3].next_offset = 18
    assert document["topics"]["orders"]["partitions"]["3"][0] == 17


def test_the_position_of_many_partitions_is_not_too_large_for_a_record() -> None:
    progress = Progress("a cluster")
    topic = progress.topics["orders"] = TopicProgress("orders", "01" * 16, "02" * 16)
    for index in range(6_000):
        partition = topic.partitions[index] = PartitionProgress(10**9, leader_epoch=1_000)
        for number in range(MOST_RUNS):
            partition.copied(Run(10**8 + 100 * number, 10**8 + 101 * number, 90))
    text = json.dumps(progress.document(), separators=(",", ":"))
    assert len(text) < 900_000
    read = Progress.read(json.loads(text)).topics["orders"].partitions[0]
    whole = topic.partitions[0]
    for offset in range(10**8, 10**8 + 2_500, 7):
        exact, found = whole.translate(offset), read.translate(offset)
        assert exact is not None
        assert found is not None
        assert found <= exact
    assert read.translate(10**8 + 2_390) == whole.translate(10**8 + 2_390)


def test_positions_of_before_tell_no_leader_epochs() -> None:
    document = {
        "cluster": "c",
        "topics": {"t": {"target": "t", "source_id": "a", "target_id": "b", "partitions": {"0": [17]}}},
    }
    assert Progress.read(document).topics["t"].partitions[0].leader_epoch == -1
