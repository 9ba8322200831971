"""The format `ottla` where Spark is a server: over Spark Connect, and in a declarative pipeline."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import NewRecord, Producer
from ottla.pipelines.java import JavaMissing
from ottla.testing import LocalBroker
from tests.pipelines.connect_server import ConnectServer
from tests.pipelines.topics import read_values, write

PROJECT = Path(__file__).parents[2] / "examples" / "declarative"
CLIENT_SECONDS = 400
LATE_WORKER = "Python worker failed to connect back"
"""What the Python of a streaming source has 10 seconds for, which no setting changes. A run is to be repeatable."""
ATTEMPTS = 4


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    try:
        with ConnectServer(tmp_path_factory.mktemp("connect")) as started:
            yield started
    except JavaMissing as reason:
        pytest.skip(str(reason))


def run(*arguments: str, **environment: str) -> str:
    """A Python of its own, for one process has sessions of one kind; what it printed."""
    for _ in range(ATTEMPTS):
        ended = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=CLIENT_SECONDS,
            env={**os.environ, **environment},
        )  # fmt: skip
        if LATE_WORKER not in ended.stderr:
            break
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


@pytest.mark.ottla(topics={"in": 2, "batch": 1, "stream": 1})
def test_topics_are_read_and_written_over_spark_connect(
    server: ConnectServer, ottla: LocalBroker, tmp_path: Path
) -> None:
    write(ottla, "in", range(20))
    told = run("-m", "tests.pipelines.connect_client", server.remote, ottla.bootstrap, str(tmp_path / "checkpoint"))
    expected = sorted(f"v{number}" for number in range(20))
    assert json.loads(told.splitlines()[-1]) == {
        "in": expected,
        "batch": [value.upper() for value in expected],
        "stream": [value.upper() for value in expected],
    }


@pytest.mark.ottla(topics={"orders": 2, "large-orders": 1})
def test_a_declarative_pipeline_is_run_twice(server: ConnectServer, ottla: LocalBroker, tmp_path: Path) -> None:
    """A topic into a table, and into a topic. The second run adds what came since, and repeats nothing."""
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("STORAGE", f"file://{tmp_path / 'storage'}"))
    for numbers in (range(10), range(10, 15)):
        orders = [json.dumps({"order_id": n, "customer": "c", "amount": 20.0 * n}).encode() for n in numbers]
        with Producer(ottla.bootstrap) as producer:
            producer.send_many("orders", [NewRecord(order) for order in orders])
        cli = ("-m", "pyspark.pipelines.cli", "run", "--spec", str(spec))
        run(*cli, SPARK_REMOTE=server.remote, OTTLA_BOOTSTRAP=ottla.bootstrap)
        large = sorted(json.loads(value)["order_id"] for value in read_values(ottla.bootstrap, "large-orders"))
        assert large == list(range(5, numbers.stop))
        query = "from pyspark.sql import SparkSession; print([r.order_id for r in SparkSession.builder.getOrCreate()"
        query += ".table('orders').orderBy('order_id').collect()])"
        assert json.loads(run("-c", query, SPARK_REMOTE=server.remote)) == list(range(numbers.stop))
