"""A declarative pipeline on a Connect server: a topic into a table and into a topic. Run again, it adds what is new."""

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
from tests.pipelines.topics import read_values

PROJECT = Path(__file__).parents[2] / "examples" / "declarative"
RUN_SECONDS = 300
COUNT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
topic = spark.read.format("ottla").option("kafka.bootstrap.servers", sys.argv[2]).option("subscribe", "orders").load()
print("rows", spark.table("orders").count(), topic.count())
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ConnectServer]:
    folder = tmp_path / "server"
    folder.mkdir()
    try:
        with ConnectServer(folder) as server:
            yield server
    except JavaMissing as reason:
        pytest.skip(str(reason))


def send(broker: LocalBroker, *order_ids: int) -> None:
    orders = [{"order_id": n, "customer": "c", "amount": 50.0 * n} for n in order_ids]
    with Producer(broker.bootstrap) as producer:
        producer.send_many("orders", [NewRecord(json.dumps(order).encode()) for order in orders])


def run(server: ConnectServer, broker: LocalBroker, spec: Path, *more: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", str(spec), *more]
    ended = subprocess.run(
        command, timeout=RUN_SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "OTTLA_BOOTSTRAP": broker.bootstrap, "SPARK_REMOTE": server.remote},
    )  # fmt: skip
    return ended.returncode, ended.stdout


def large(broker: LocalBroker) -> list[int]:
    return sorted(json.loads(value)["order_id"] for value in read_values(broker.bootstrap, "large-orders"))


@pytest.mark.ottla(topics={"orders": 2, "large-orders": 2})
def test_a_declarative_pipeline_runs_twice_and_is_refreshed_on_purpose(
    server: ConnectServer, ottla: LocalBroker, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    shutil.copytree(PROJECT, project)
    spec = project / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("STORAGE", (tmp_path / "storage").as_uri()))
    send(ottla, 1, 2, 3)
    code, said = run(server, ottla, spec)
    assert code == 0, said
    assert large(ottla) == [2, 3]
    send(ottla, 4)
    code, said = run(server, ottla, spec)
    assert code == 0, said
    assert large(ottla) == [2, 3, 4]
    counted = [sys.executable, "-c", COUNT, server.remote, ottla.bootstrap]
    ended = subprocess.run(counted, timeout=RUN_SECONDS, capture_output=True, text=True)
    assert "rows 4 4" in ended.stdout, ended.stderr
    code, said = run(server, ottla, spec, "--full-refresh-all")
    assert code != 0
    assert "set option generation to 1" in said
    assert large(ottla) == [2, 3, 4]
