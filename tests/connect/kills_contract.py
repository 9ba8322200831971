"""What runners promise when they are killed, on any Kafka."""

import json
import signal
import sqlite3
import uuid
from pathlib import Path
from typing import Any

from ottla.client import Admin, ClientOptions, NewRecord, NewTopic, Producer
from ottla.connect.state import load_states
from tests.connect.running import RunnerProcess, until, values_of, write_file

END = 400


class KillsContract:
    session_timeout_ms = 6_000
    """What Apache Kafka allows at least."""

    def test_nothing_is_lost_or_doubled_when_runners_are_killed(self, bootstrap: str, tmp_path: Path) -> None:
        """Three tasks, two runners; one is killed, its tasks move, and later the other is killed and replaced."""
        topic = f"numbers-{uuid.uuid4().hex[:8]}"
        file = self._source_file(tmp_path, bootstrap, topic, tasks=3)
        with RunnerProcess(file) as first, RunnerProcess(file) as second:
            until(lambda: first.runs() and second.runs())
            first.kill()
            until(lambda: second.tasks_run() == {"0", "1", "2"})
            second.kill()
            with RunnerProcess(file) as third:
                until(lambda: len(values_of(bootstrap, topic)) >= 3 * END)
                third.stop()
        self._check_numbers(bootstrap, topic, tasks=3)

    def test_a_runner_that_was_stopped_for_long_is_fenced(self, bootstrap: str, tmp_path: Path) -> None:
        topic = f"numbers-{uuid.uuid4().hex[:8]}"
        file = self._source_file(tmp_path, bootstrap, topic, tasks=1)
        with RunnerProcess(file) as first:
            until(first.runs)
            first.signal(signal.SIGSTOP)
            with RunnerProcess(file) as second:
                until(second.runs)
                first.signal(signal.SIGCONT)
                until(lambda: len(values_of(bootstrap, topic)) >= END)
        self._check_numbers(bootstrap, topic, tasks=1)

    def test_a_sink_that_is_killed_writes_each_row_once(self, bootstrap: str, tmp_path: Path) -> None:
        """Rows are added up by the database, so that one that comes twice shows."""
        topic = f"orders-{uuid.uuid4().hex[:8]}"
        database = tmp_path / "shop.db"
        _make_counting_table(database)
        name = f"sink-{uuid.uuid4().hex[:8]}"
        connector = {"type": "sql-sink", "url": f"sqlite:///{database}?timeout=30", "topics": [topic],
                     "format": "row", "keys": ["id"], "table": "orders"}  # fmt: skip
        file = write_file(
            tmp_path / "connect.toml", bootstrap, {name: connector}, session_timeout_ms=self.session_timeout_ms
        )
        with Admin(bootstrap) as admin:
            admin.create_topics([NewTopic(topic, 2)])
        with Producer(bootstrap) as producer:
            for begin in range(0, END, 40):
                records = [NewRecord(json.dumps({"id": n}).encode(), b"%d" % n) for n in range(begin, begin + 40)]
                producer.send_many(topic, records)
                if begin == END // 2:
                    with RunnerProcess(file) as runner:
                        until(lambda: _written(database) > 0)
                        runner.kill()
            with RunnerProcess(file) as runner:
                until(lambda: _written(database) >= END)
                runner.stop()
        with sqlite3.connect(database) as connection:
            assert connection.execute("SELECT count(*), max(times) FROM counts").fetchone() == (END, 1)

    def _source_file(self, folder: Path, bootstrap: str, topic: str, *, tasks: int) -> Path:
        connector: dict[str, Any] = {"type": "tests.connect.counting:Counting", "topic": topic, "end": END, "batch": 2,
                                     "pause_ms": 30, "tasks": tasks, "transaction_ms": 20}  # fmt: skip
        return write_file(
            folder / "connect.toml", bootstrap, {topic: connector}, session_timeout_ms=self.session_timeout_ms
        )

    def _check_numbers(self, bootstrap: str, topic: str, *, tasks: int) -> None:
        found = values_of(bootstrap, topic)
        for task in range(tasks):
            own = [value for value in found if value.startswith(b"%d/" % task)]
            assert own == [b"%d/%d" % (task, number) for number in range(END)]
        states, _ = load_states(bootstrap, ClientOptions())
        assert set(states.of(topic).tasks) == set(map(str, range(tasks)))


def _make_counting_table(database: Path) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        connection.execute("CREATE TABLE counts (id INTEGER PRIMARY KEY, times INTEGER)")
        # An upsert of a row that is there fires no insert: the trigger counts attempts, before any conflict is seen.
        connection.execute(
            "CREATE TRIGGER counting BEFORE INSERT ON orders BEGIN "
            "INSERT INTO counts VALUES (new.id, 1) ON CONFLICT (id) DO UPDATE SET times = times + 1; END"
        )


def _written(database: Path) -> int:
    with sqlite3.connect(database, timeout=30) as connection:
        return int(connection.execute("SELECT count(*) FROM orders").fetchone()[0])
