"""`ottla pipeline` with what is wrong: one plain sentence and an exit code, before Spark is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.cli import main
from ottla.pipelines import Pipeline, Table
from ottla.pipelines.tables.layout import Layout
from ottla.pipelines.tables.pipeline import PipelineRefused
from ottla.pipelines.tables.table import ChangeTable
from ottla.testing import LocalBroker
from tests.pipelines.tables.model import Change, rows_of

NOBODY = "127.0.0.1:1"
GOOD = """\
bootstrap = "{bootstrap}"
start_seconds = 0.5

[[tables]]
source = "changes"
target = "table"
keys = ["id"]
"""
COLUMNS = {"id": "bigint", "value": "string", "note": "string"}


def says(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """The exit code and the sentence."""
    code = main.main(["pipeline", *arguments])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("ottla: ")
    assert err.count("\n") == 1, err
    return code, err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("bootstrap = ", "bootstrap ", "shop.toml: Expected '='"),
        ("bootstrap", "bootstarp", "the pipeline has no setting 'bootstarp'; there are bootstrap, "),
        ("keys", "key", "a table has no setting 'key'; there are "),
        ("[[tables]]", "[tables]", "there is no [[tables]] in it"),
        ('keys = ["id"]', "", "keys is missing in a table"),
        ('"id"', "5", "keys is a list of texts, not [5]"),
        ('"changes"', "7", "source is a text, not 7"),
        ('["id"]', '["id"]\nbuckets = 0', "buckets is a whole number from 1 to 2^63 - 1, not 0"),
        ('["id"]', '["id"]\ncolumns = {id = "varchar"}', "table table: the type 'varchar' is unknown; there are "),
        ('["id"]', '["id"]\nexcept_column_list = ["id"]', "the key column 'id' cannot be left out"),
        ('"id"', '"_id"', "column '_id': names that begin with an underscore are the table's own"),
        ('["id"]', '["id"]\ncolumns = {ID = "int"}', "the table has 'ID', and Spark does not tell them apart"),
        ('["id"]', '["id", "id"]', "keys: a column stands there twice: id, id"),
        ('["id"]', '["id"]\nbuckets = 1000000000', "buckets is 1 to 4096, not 1000000000"),
        ('"table"', '"ftp://x/y"', "table y: engine deltalake has paths of file, hdfs, "),
        ('"table"', '"a%20b"', "choose a path without such signs"),
        ('"table"', '"hdfs://127.0.0.1:1/y"', "hdfs://127.0.0.1:1/y cannot be read: "),
        ('["id"]', '["id"]\non_error = "ignore"', "on_error is one of dead_letters, stop, not 'ignore'"),
        ('["id"]', '["id"]\ndead_letter_topic = "changes"', "dead_letter_topic 'changes' is a source"),
        (
            '["id"]',
            '["id"]\nstored_as_scd_type = 2.0',
            "stored_as_scd_type is a whole number from 1 to 2^63 - 1, not 2.0",
        ),
        ("start_seconds = 0.5", "start_seconds = inf", "start_seconds is a number above 0, not inf"),
        ('["id"]', '["id"]\nstored_as_scd_type = 3', "stored_as_scd_type is 1 or 2, not 3"),
        ("start_seconds", "format = 'csv'\nstart_seconds", "format is one of ottla, kafka, not 'csv'"),
        (
            "start_seconds = 0.5",
            'trigger_seconds = "soon"',
            "seconds is a number from 0.001 to 1,000,000, not 'soon'",
        ),
        (
            "start_seconds = 0.5",
            "trigger_seconds = 1e-9",
            "seconds is a number from 0.001 to 1,000,000, not 1e-09",
        ),
        ("start_seconds", "max_bytes_per_trigger = 9223372036854775808\nstart_seconds", "from 1 to 2^63 - 1, not 922"),
        (
            "start_seconds",
            "retention_hours = -1\nstart_seconds",
            "hours is a whole number from 0 to 1,000,000, not -1",
        ),
        ("\n\n", '\noptions = ["x"]\n', "options is a table of texts"),
        ("\n\n", '\noptions = {failOnDataLos = "x"}\n', "has no option failOnDataLos: do you mean failOnDataLoss?"),
        (
            "\n\n",
            '\noptions = {minPartitions = "0"}\n',
            "options: option minPartitions is a whole number of at least 1",
        ),
        (
            "\n\n",
            '\noptions = {startingOffsets = "latest"}\n',
            "options: startingOffsets is set by the pipeline itself",
        ),
        (
            '["id"]',
            '["id"]\nsequence_by = "seq"',
            'table table: sequence_by is "position" or "offset" where the source',
        ),
        ('["id"]', "['id']\napply_as_deletes = 'x'", "table table: apply_as_deletes is for rows of one's own"),
        (
            "[[",
            '[[tables]]\nsource = "o"\ntarget = "./table/"\nkeys = ["id"]\n[[',
            "two tables have the target './table/'",
        ),
        ("[[", '[[tables]]\nsource = "o"\ntarget = "table__changes"\nkeys = ["id"]\n[[', "are in each other's way at "),
    ],
)
def test_a_wrong_file_is_told(
    old: str, new: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(GOOD.format(bootstrap=NOBODY).replace(old, new))
    code, told = says(capsys, "status", str(file))
    assert code == 1
    assert sentence in told


def test_a_file_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in says(capsys, "run", str(tmp_path / "none.toml"))[1]
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    assert "it is no text" in says(capsys, "run", str(tmp_path / "bytes.toml"))[1]
    (tmp_path / "empty.py").write_text("x = 1\n")
    assert "there is no `pipeline = Pipeline(...)` in it" in says(capsys, "run", str(tmp_path / "empty.py"))[1]
    (tmp_path / "wrong.py").write_text("x = 1\ny = z\n")
    (tmp_path / "ends.py").write_text("import sys\nsys.exit('no configuration')\n")
    assert "ends.py: line 2: SystemExit: no configuration" in says(capsys, "run", str(tmp_path / "ends.py"))[1]
    assert "wrong.py: line 2: NameError: name 'z' is not defined" in says(capsys, "run", str(tmp_path / "wrong.py"))[1]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["status", "--table", "other"], 1, "no table 'other'; there are table"),
        (["rebuild", "--as-of", "yesterday"], 2, "'yesterday' is not a time like 2026-11-16T12:00"),
        (["rebuild", "--as-of", "2026-11-16"], 1, "--as-of needs --to"),
        (["verify", "--against", "shop"], 1, "check_against is FILE:TABLE"),
        (["verify"], 1, "there is no table at "),
        (["run"], 1, "cannot reach a broker at 127.0.0.1:1: connection refused"),
        (["rebuild"], 1, "cannot reach a broker at 127.0.0.1:1: connection refused"),
    ],
)
def test_wrong_arguments_and_a_broker_that_is_not_there_are_told(
    arguments: list[str], code: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shop.toml").write_text(GOOD.format(bootstrap=NOBODY))
    found = says(capsys, arguments[0], str(tmp_path / "shop.toml"), *arguments[1:])
    assert found[0] == code
    assert sentence in found[1]


def test_a_pipeline_in_python_is_as_good_with_lists_and_single_names() -> None:
    tables = [Table("a", "x/t", ["id"], stored_as_scd_type=2, track_history_column_list="v"), Table("b", "y/t", "id")]  # type: ignore[arg-type]
    pipeline = Pipeline(NOBODY, tables)  # type: ignore[arg-type]
    assert [pipeline.rules(table).layout for table in pipeline.tables] == [
        Layout(("id",), 2, tracked=("v",)),
        Layout(("id",)),
    ]
    assert pipeline.table("y/t").source == "b"
    with pytest.raises(PipelineRefused, match="'t' is the name of several tables, name one by its target: x/t, y/t"):
        pipeline.table("t")


def test_a_topic_that_is_not_there_is_told(
    ottla_session: LocalBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = GOOD.format(bootstrap=ottla_session.bootstrap).replace('"changes"', '"nothing-like-this"')
    (tmp_path / "shop.toml").write_text(text)
    for verb in ("run", "rebuild"):
        code, told = says(capsys, verb, str(tmp_path / "shop.toml"))
        assert code == 1
        assert "nothing-like-this" in told


def test_a_signal_to_all_processes_of_a_pipeline_ends_it_without_an_error(
    ottla_session: LocalBroker, tmp_path: Path
) -> None:
    topic = f"signalled-{tmp_path.name}"
    ottla_session.topic(topic)
    text = GOOD.format(bootstrap=ottla_session.bootstrap).replace('"changes"', f'"{topic}"')
    (tmp_path / "shop.toml").write_text(text)
    command = [sys.executable, "-m", "ottla", "pipeline", "run", str(tmp_path / "shop.toml"), "--json"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["applied"] == 0
        os.killpg(process.pid, signal.SIGTERM)
        told = process.stderr.read()
    assert process.returncode == 0, told
    assert "Java process has ended" not in told


def test_a_table_of_others_or_with_other_keys_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = ChangeTable(str(tmp_path / "table"), Layout(("value",), 1, 16))
    made.create(COLUMNS)
    made.append_rows(rows_of([Change(1, 1, "x")], 16), {("changes", 0): 4})
    (tmp_path / "shop.toml").write_text(GOOD.format(bootstrap=NOBODY))
    code, told = says(capsys, "status", str(tmp_path / "shop.toml"))
    assert code == 1
    assert "was made with keys ('value',), and cannot go on with ('id',)" in told


def test_a_table_whose_log_is_broken_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    (tmp_path / "table" / "_delta_log" / "00000000000000000000.json").write_text("{rubbish")
    (tmp_path / "shop.toml").write_text(GOOD.format(bootstrap=NOBODY))
    for verb in ("status", "verify"):
        code, told = says(capsys, verb, str(tmp_path / "shop.toml"))
        assert code == 1
        assert f"{tmp_path / 'table'} cannot be read: Kernel error: Json error" in told


def test_the_status_of_a_table_whose_broker_is_away(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = ChangeTable(str(tmp_path / "table"), Layout(("id",), 1, 16))
    made.create(COLUMNS)
    made.append_rows(rows_of([Change(1, 1, "x"), Change(2, 1, "y")], 16), {("changes", 0): 4})
    (tmp_path / "shop.toml").write_text(GOOD.format(bootstrap=NOBODY))
    assert main.main(["pipeline", "status", str(tmp_path / "shop.toml"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows_folded"], told["changes_waiting"], told["lag_records"]) == (0, 2, None)
    assert "connection refused" in told["problem"]
