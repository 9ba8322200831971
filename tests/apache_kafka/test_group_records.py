"""Kafka's own tool reads what the coordinator of groups writes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ottla.records.build import build_batch
from tests.apache_kafka.harness import run_tool
from tests.coordinator.consumer_members import FakeMember, World
from tests.coordinator.mixed_members import ClassicClient, settle_all

DUMP = "org.apache.kafka.tools.DumpLogSegments"
RECORD = re.compile(r" key: (\{.*\}) payload: (<DELETE>|\{.*\})$")


def life_of_a_group() -> World:
    """A classic group becomes a consumer group with a static member and an expression, and classic again."""
    world = World()
    world.add_topic("t", 4)
    classic = ClassicClient(world, "classic")
    settle_all(world, classic)
    first = FakeMember(world, "first", subscribed_topic_regex="t+", instance_id="i", server_assignor="uniform")
    settle_all(world, classic, first)
    first.leave(-2)
    second = FakeMember(world, "second", subscribed_topic_regex="t+", instance_id="i")
    settle_all(world, classic, second)
    second.leave()
    settle_all(world, classic)
    return world


@pytest.mark.usefixtures("kafka_classpath")
def test_every_record_is_read_as_it_was_meant(tmp_path: Path) -> None:
    world = life_of_a_group()
    segment = tmp_path / "00000000000000000000.log"
    records = world.driver.log
    batch = build_batch(
        [record.value for record in records], keys=[record.key for record in records], timestamp=world.driver.now_ms
    )
    segment.write_bytes(batch)
    read = [found for line in run_tool(DUMP, "--files", str(segment), "--offsets-decoder").splitlines()
            if (found := RECORD.search(line))]  # fmt: skip
    assert len(read) == len(records)
    values: dict[int, list[Any]] = defaultdict(list)
    for found in read:
        kind = int(json.loads(found[1])["type"])
        values[kind].append(None if found[2] == "<DELETE>" else json.loads(found[2])["data"])
    assert set(values) == {2, 3, 4, 5, 6, 7, 8, 16}
    assert all(None in tombstones for tombstones in values.values())
    epochs = [value["epoch"] for value in values[3] if value is not None]
    assert epochs == sorted(epochs)
    assert values[16][0]["topics"] == ["t"]
    assert any(value["classicMemberMetadata"] for value in values[5] if value is not None)
    given = [topic for value in values[8] if value is not None for topic in value["assignedPartitions"]]
    assert all(len(topic["assignmentEpochs"]) == len(topic["partitions"]) for topic in given)
    assert values[2][-1]["generation"] == epochs[-1] + 1
