"""`ottla connect`: mistakes are one sentence, the status is told in plain words, and secrets are not shown."""

import json
from pathlib import Path

import pytest

from ottla.cli.main import main
from ottla.client import ClientOptions, Producer
from ottla.connect.state import TOPIC, TaskStatus, Wish, make_wish, now_ms, status_record
from ottla.testing import LocalBroker
from tests.connect.running import write_file


def file_of(folder: Path, bootstrap: str, **settings: object) -> str:
    sink = {"type": "sql-sink", "url": "sqlite:////nowhere/at/all.db", "topics": ["orders"], **settings}
    return str(write_file(folder / "shop.toml", bootstrap, {"out": sink}))


def test_check_says_what_would_go_wrong_and_no_secret(
    ottla: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_FOLDER", "hunter2")
    file = file_of(tmp_path, ottla.bootstrap, url="sqlite:////${env:SECRET_FOLDER}/x.db", dead_letter="letters")
    assert main(["connect", "check", file]) == 1
    said = capsys.readouterr().out
    assert "out: PROBLEM: there is no topic orders\n" in said
    assert "out: PROBLEM: there is no topic letters for dead letters: create it\n" in said
    assert "out: PROBLEM: the database cannot be reached" in said
    assert main(["connect", "check", file, "--json"]) == 1
    said += capsys.readouterr().out
    assert "hunter2" not in said


def test_a_wrong_file_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(tmp_path, "localhost:1", tabel="x")
    for verb in ("run", "check", "status", "pause", "resume", "restart", "reset"):
        assert main(["connect", verb, file]) == 1
        said = capsys.readouterr().err
        assert said.startswith(f"ottla: {file}: connector out: sql-sink has no setting 'tabel'")
        assert said.count("\n") == 1
    assert main(["connect", "run", str(tmp_path / "gone.toml")]) == 1
    assert capsys.readouterr().err.endswith("gone.toml: no such file or directory\n")
    assert main(["connect", "status", file_of(tmp_path, "localhost:1"), "--connector", "x"]) == 1
    assert capsys.readouterr().err == "ottla: there is no connector 'x'; there are out\n"


@pytest.mark.ottla(topics={"orders": 1})
def test_status_tells_the_last_error_and_who_is_gone(
    ottla: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = file_of(tmp_path, ottla.bootstrap)
    now = now_ms()
    failed = TaskStatus("waiting", "runner-1", now, 7, 70, 3.5, 1, 2, error="the database is away", error_at_ms=now)
    make_wish(ottla.bootstrap, ClientOptions(), "out", Wish())
    with Producer(ottla.bootstrap) as producer:
        records = [
            status_record("out", "runner-1/0", failed),
            status_record("out", "runner-2/0", TaskStatus("running", "runner-2", now - 60_000)),
            status_record("out", "runner-3/0", TaskStatus("running", "runner-3", now - 10_000_000)),
        ]
        producer.send_many(TOPIC, records)
    assert main(["connect", "status", file]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[:5] == ["out", "runner-1/0", "waiting", "runner-1", "7"]
    assert "no runner" in lines[2]
    assert lines[3].startswith("out/runner-1/0: the last error, ")
    assert lines[3].endswith(" s ago: the database is away")
    assert len(lines) == 4
    assert main(["connect", "status", file, "--json"]) == 0
    first = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (first["state"], first["error"], first["records"]) == ("waiting", "the database is away", 7)


@pytest.mark.ottla(topics={"orders": 1})
def test_reset_tells_what_a_connector_says(
    ottla: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["connect", "reset", file_of(tmp_path, ottla.bootstrap), "--yes"]) == 1
    assert capsys.readouterr().err.startswith("ottla: out: (sqlite3.OperationalError) unable to open database file")


@pytest.mark.ottla(topics={"orders": 1})
def test_reset_wants_to_be_sure(ottla: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(tmp_path, ottla.bootstrap, url=f"sqlite:///{tmp_path}/x.db")
    assert main(["connect", "reset", file]) == 1
    assert "say --yes" in capsys.readouterr().err
    assert main(["connect", "reset", file, "--yes"]) == 0
    assert capsys.readouterr().out == "out: the offsets are forgotten\n"
