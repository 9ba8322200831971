"""One micro-batch is one transaction: whoever dies, whoever comes late, it is in the topic once and whole."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.client import LATEST, Admin, Isolation, Producer, ProducerFenced, Reader, TopicPartition
from ottla.pipelines.sink import writers
from ottla.pipelines.sink.memory import Batch, SinkRefused
from ottla.pipelines.sink.options import sink_options
from ottla.pipelines.sink.plan import plan_of
from ottla.pipelines.sink.writers import Staged, StreamWriter, commit_batch
from ottla.testing import LocalBroker
from tests.pipelines.sink_driver import QUERY, TOPIC, commit, staged

pytestmark = pytest.mark.ottla(topics={TOPIC: 2})


def values(broker: LocalBroker, isolation: Isolation = Isolation.READ_COMMITTED) -> list[str]:
    with Reader(broker.bootstrap, TOPIC, end=LATEST, isolation=isolation) as reader:
        return sorted((record.value or b"").decode() for fetched in reader for record in fetched.records)


def rows(*numbers: int) -> list[str]:
    return sorted(f"{number}.{task}.{row}" for number in numbers for task in range(2) for row in range(3))


def run_driver(broker: LocalBroker, number: int, run_id: str, where: str) -> None:
    command = [sys.executable, "-m", "tests.pipelines.sink_driver", broker.bootstrap, str(number), run_id, where]
    ended = subprocess.run(command, timeout=60, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr


def test_a_batch_that_comes_again_adds_nothing(ottla: LocalBroker) -> None:
    for number in (0, 1, 1, 0, 2):
        commit(ottla.bootstrap, number)
    assert values(ottla) == rows(0, 1, 2)


def test_a_driver_killed_before_its_transaction_ends_has_written_nothing(ottla: LocalBroker) -> None:
    commit(ottla.bootstrap, 0)
    run_driver(ottla, 1, "first", "before")
    assert values(ottla, Isolation.READ_UNCOMMITTED) == rows(0, 1)
    assert values(ottla) == rows(0)
    commit(ottla.bootstrap, 1, "second")
    assert values(ottla) == rows(0, 1)


def test_a_driver_killed_while_its_transaction_ends_is_not_waited_for(
    ottla: LocalBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it remembers is in the transaction already, and that would be open for a minute."""
    monkeypatch.setattr(writers, "_TIME_TO_END_MS", 200)
    commit(ottla.bootstrap, 0)
    run_driver(ottla, 1, "first", "at the end")
    commit(ottla.bootstrap, 1, "second")
    assert values(ottla) == rows(0, 1)


def test_a_driver_killed_after_its_transaction_has_written_all(ottla: LocalBroker) -> None:
    run_driver(ottla, 0, "first", "after")
    commit(ottla.bootstrap, 0, "second")
    assert values(ottla) == rows(0)


def test_a_driver_that_comes_back_late_is_fenced(ottla: LocalBroker) -> None:
    commit(ottla.bootstrap, 0, "first")
    commit(ottla.bootstrap, 1, "second")
    with pytest.raises(SinkRefused, match="taken over by a later run"):
        commit(ottla.bootstrap, 2, "first")
    assert values(ottla) == rows(0, 1)
    commit(ottla.bootstrap, 2, "second")  # the late one has not disturbed it
    assert values(ottla) == rows(0, 1, 2)


def test_a_transaction_in_the_hands_of_a_late_driver_is_ended(ottla: LocalBroker) -> None:
    late = Producer(ottla.bootstrap, transactional_id=f"spark-sink-{TOPIC}")
    with late, pytest.raises(ProducerFenced), late.transaction():  # noqa: PT012
        late.send_many(TOPIC, [b"late"])
        commit(ottla.bootstrap, 0)
    assert values(ottla) == rows(0)


def test_a_query_without_its_checkpoint_is_refused_until_it_begins_a_generation(ottla: LocalBroker) -> None:
    commit(ottla.bootstrap, 0)
    with pytest.raises(SinkRefused, match="set option generation to 1"):
        commit(ottla.bootstrap, 0, "new run", "new query")
    assert values(ottla) == rows(0)
    commit(ottla.bootstrap, 0, "new run", "new query", generation="1")
    assert values(ottla) == rows(0, 0)
    with pytest.raises(SinkRefused, match="another query has taken over"):
        commit(ottla.bootstrap, 1)


def test_a_checkpoint_that_is_put_back_by_one_batch_is_refused(ottla: LocalBroker, tmp_path: Path) -> None:
    """Its next batch has the number of the last one that was written, and is planned again, with what came since."""
    given = {"kafka.bootstrap.servers": ottla.bootstrap, "topic": TOPIC}
    checkpoints = {"readable": {"checkpointLocation": str(tmp_path)}, "elsewhere": {}}
    (tmp_path / "offsets").mkdir()

    def write(sink: str, run_id: str, end: int, **more: str) -> None:
        """Batch 1, which reads up to an offset; as many rows as there are."""
        (tmp_path / "offsets" / "1").write_text(f'v1\n{{"batchTimestampMs":{time.time()}}}\n{{"in":{{"0":{end}}}}}')
        stream = writers._stream([pa.record_batch({"value": pa.array([b"x"] * end, pa.binary())})])
        options = given | {"kafka.transactional.id": sink} | checkpoints[sink] | more
        writer = StreamWriter(sink_options(options, is_stream=True), StructType([StructField("value", BinaryType())]))
        writer.commit([Staged({TOPIC: stream}, QUERY, run_id, end)], 1)

    for sink in checkpoints:
        write(sink, "monday", 3, continueFromBatch="1")
        write(sink, "tuesday", 3)
        with pytest.raises(SinkRefused, match=r"older copy.*generation to 1.*continueFromBatch to 2"):
            write(sink, "wednesday", 5)
        write(sink, "wednesday", 5, continueFromBatch="2")
        write(sink, "wednesday", 5, generation="1")
    assert len(values(ottla)) == 2 * (3 + 5)


@pytest.mark.parametrize("prefix", ["", "file:", "file://"])
def test_the_plan_of_a_batch_is_what_is_read_of_each_source(prefix: str, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    plan = tmp_path / "offsets" / "4"
    found = set()
    for told in (1, 2):
        plan.write_text(f'v1\n{{"batchTimestampMs":{told}}}\n{{"in":{{"0":7}}}}\n-')
        found.add(plan_of(f"{prefix}{tmp_path}", 4))
    assert len(found) == 1
    assert None not in found
    plan.write_text('v1\n{"batchTimestampMs":2}\n{"in":{"0":8}}\n-')
    assert plan_of(f"{prefix}{tmp_path}", 4) not in found
    plan.write_text('v1\n{"batchTimestampMs":2}\n{"logOffset":4}')  # which files that are, it does not say
    assert plan_of(f"{prefix}{tmp_path}", 4) is None
    for elsewhere in (None, "hdfs://host/x", f"s3:{tmp_path}", f"{tmp_path}/none"):
        assert plan_of(elsewhere, 4) is None


def test_a_memory_that_the_cluster_has_lost_is_not_guessed(ottla: LocalBroker) -> None:
    commit(ottla.bootstrap, 0)
    with Admin(ottla.bootstrap) as admin:
        admin.delete_groups([f"spark-sink-{TOPIC}"])
    with pytest.raises(SinkRefused, match="set option continueFromBatch to 1"):
        commit(ottla.bootstrap, 1)
    commit(ottla.bootstrap, 1, continueFromBatch="1")
    commit(ottla.bootstrap, 2, continueFromBatch="1")
    assert values(ottla) == rows(0, 1, 2)


def test_a_memory_that_is_not_to_be_seen_yet_is_not_lost(ottla: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the first batch is told before it is through on all brokers."""
    commit(ottla.bootstrap, 0)
    monkeypatch.setattr(writers, "_first_look", lambda *_: None)
    for _ in range(2):
        commit(ottla.bootstrap, 1)
    assert values(ottla) == rows(0, 1)


def test_a_batch_without_rows_is_remembered_also_where_rows_name_their_topics(ottla: LocalBroker) -> None:
    """Before there is a row, nobody knows a topic."""
    given = {"kafka.bootstrap.servers": ottla.bootstrap, "kafka.transactional.id": "by-row"}
    options = sink_options(given, is_stream=True)
    commit_batch(options, Batch(0, QUERY, "run", 0), [Staged({}, QUERY, "run")])
    for _ in range(2):
        commit_batch(options, Batch(0, QUERY, "run", 1), staged(1))
    assert values(ottla) == rows(1)


def test_a_group_that_others_use_is_left_alone(ottla: LocalBroker) -> None:
    with Admin(ottla.bootstrap) as admin:
        admin.alter_group_offsets(f"spark-sink-{TOPIC}", {TopicPartition(TOPIC, 1): 3})
    with pytest.raises(SinkRefused, match="is used by others"):
        commit(ottla.bootstrap, 0)


def test_a_broker_that_dies_in_the_middle_costs_no_row(ottla: LocalBroker) -> None:
    commit(ottla.bootstrap, 0)
    run_driver(ottla, 1, "first", "before")
    ottla.restart(kill=True)
    commit(ottla.bootstrap, 1, "second")
    assert values(ottla) == rows(0, 1)
