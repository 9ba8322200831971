"""One micro-batch is one transaction: whoever dies, whoever comes late, it is in the topic once and whole."""

import signal
import subprocess
import sys

import pytest

from ottla.client import LATEST, Admin, Isolation, Producer, ProducerFenced, Reader, TopicPartition
from ottla.pipelines.sink.memory import Batch, SinkRefused
from ottla.pipelines.sink.options import sink_options
from ottla.pipelines.sink.writers import Staged, commit_batch
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


def test_a_memory_that_the_cluster_has_lost_is_not_guessed(ottla: LocalBroker) -> None:
    commit(ottla.bootstrap, 0)
    with Admin(ottla.bootstrap) as admin:
        admin.delete_groups([f"spark-sink-{TOPIC}"])
    with pytest.raises(SinkRefused, match="set option continueFromBatch to 1"):
        commit(ottla.bootstrap, 1)
    commit(ottla.bootstrap, 1, continueFromBatch="1")
    commit(ottla.bootstrap, 2, continueFromBatch="1")
    assert values(ottla) == rows(0, 1, 2)


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
