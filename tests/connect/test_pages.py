"""/metrics and /health of a runner."""

import urllib.error
import urllib.request
from pathlib import Path

from ottla.connect.pages import RunnerPages
from ottla.connect.state import TaskStatus
from ottla.testing import LocalBroker
from tests.connect.running import RunnerProcess, until, write_file


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_what_tasks_have_told_is_counted() -> None:
    pages = RunnerPages()
    pages.tell("in", "-", TaskStatus("waiting", "r", 0, error="the cluster is away"))
    assert pages.health() == (503, "in/-: the cluster is away\n")
    pages.tell("in", "0", TaskStatus("running", "r", 1, records=7, bytes=70, lag_seconds=0.5))
    pages.tell("in", "1", TaskStatus("failed", "r", 1, records=2, retries=3, dead_letters=1, error="no such table"))
    assert pages.health() == (503, "in/1: no such table\n")
    lines = [line for line in pages.metrics()[1].splitlines() if not line.startswith("#")]
    assert lines == [
        'ottla_connect_records_total{connector="in",task="0"} 7',
        'ottla_connect_records_total{connector="in",task="1"} 2',
        'ottla_connect_bytes_total{connector="in",task="0"} 70',
        'ottla_connect_bytes_total{connector="in",task="1"} 0',
        'ottla_connect_dead_letters_total{connector="in",task="0"} 0',
        'ottla_connect_dead_letters_total{connector="in",task="1"} 1',
        'ottla_connect_retries_total{connector="in",task="0"} 0',
        'ottla_connect_retries_total{connector="in",task="1"} 3',
        'ottla_connect_lag_seconds{connector="in",task="0"} 0.5',
        'ottla_connect_tasks{connector="in",state="failed"} 1',
        'ottla_connect_tasks{connector="in",state="running"} 1',
    ]


def test_a_runner_serves_them(ottla: LocalBroker, tmp_path: Path) -> None:
    connector = {"type": "tests.connect.counting:Counting", "topic": "numbers", "end": 100, "transaction_ms": 20}
    file = write_file(tmp_path / "c.toml", ottla.bootstrap, {"numbers": connector}, session_timeout_ms=2_000)
    with RunnerProcess(file, options=["--metrics", "127.0.0.1:0"]) as runner:
        url = until(lambda: [line["metrics"] for line in runner.lines() if "metrics" in line])[0]
        line = 'ottla_connect_records_total{connector="numbers",task="0"} 100'
        until(lambda: line in get(url)[1])
        assert get(url.replace("/metrics", "/health")) == (200, "ok\n")
        assert get(url.replace("/metrics", "/else"))[0] == 404
        runner.stop()
