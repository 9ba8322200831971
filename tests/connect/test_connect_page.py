"""docs/connect.md says what is so: its commands print what it shows, and its connectors run."""

import contextlib
import re
import sqlite3
from pathlib import Path

from ottla.testing import LocalBroker
from tests.cli.command_line_page import DOCS, runnable_commands
from tests.connect.running import RunnerProcess, until

PAGE = DOCS / "connect.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_commands_print_what_the_page_shows(ottla: LocalBroker, tmp_path: Path) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(blocks("toml")[0].replace("localhost:9092", ottla.bootstrap))
    for command, output, run in runnable_commands(PAGE, ottla.bootstrap, tmp_path):
        if " connect run " in command:  # as long as it takes, in place of some seconds
            with RunnerProcess(file) as runner:
                until(lambda: _has_a_row(tmp_path / "orders.db"))
                runner.stop()
        else:
            assert run() == output, command


def _has_a_row(database: Path) -> bool:
    if not database.exists():
        return False
    with contextlib.closing(sqlite3.connect(database)) as connection:
        try:
            return bool(connection.execute("SELECT 1 FROM orders").fetchone())
        except sqlite3.OperationalError:  # not made yet
            return False


def test_the_connector_of_thirty_lines_runs(ottla: LocalBroker, tmp_path: Path) -> None:
    (code,) = blocks("python")
    (tmp_path / "sensors.py").write_text(code)
    file = tmp_path / "sensors.toml"
    file.write_text(f'bootstrap = "{ottla.bootstrap}"\n' + blocks("toml")[1])
    out = tmp_path / "degrees.txt"
    ottla.topic("degrees")
    file.write_text(file.read_text().replace('"degrees.txt"', f'"{out}"'))
    with RunnerProcess(file) as runner:
        until(lambda: out.exists() and out.read_text().count("\n") >= 5)
        runner.stop()
    assert out.read_text().splitlines()[0].partition(" ")[2].startswith('{"number": 1,')


def test_it_links_to_what_is_there() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)", PAGE.read_text()):
        assert (DOCS / target).exists()
