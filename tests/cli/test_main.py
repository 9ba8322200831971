"""The frame of the command line: help, errors, exit codes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from ottla.cli import log, main, parser
from ottla.cli.main import VERBS

PROGRAM = (sys.executable, "-m", "ottla")


def run_program(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "arguments", [["--help"], *([verb, "--help"] for verb in VERBS), ["log", "dump", "-h"], ["log", "verify", "-h"]]
)
def test_every_help_has_examples(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(arguments) == 0
    out = capsys.readouterr().out
    assert "\nexamples:\n  ottla " in out
    assert max(map(len, out.splitlines())) <= 100


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0
    assert capsys.readouterr().out == f"ottla {ottla.__version__}\n"


def test_without_arguments_it_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    assert capsys.readouterr().out.startswith("usage: ottla ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lug"], "'lug'"),
        (["log"], "VERB; see 'ottla log --help'"),
        (["log", "dump"], "PATH; see 'ottla log dump --help'"),
        (["log", "dump", "--offset", "9-3", "x"], "'9-3' is not FROM or FROM-TO"),
        (["log", "dump", "--offset", "-3", "x"], "--offset"),
        (["log", "dump", "--limit", "0", "x"], "'0' is not a number above 0"),
        (["log", "verify", "--deep", "x"], "--deep"),
        (["log", "verify", "--comp", "x"], "--comp"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("ottla: ")
    assert says in err
    assert "--help'" in err


@pytest.mark.parametrize("verb", ["dump", "verify"])
def test_a_path_that_is_missing(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = tmp_path / "missing.log"
    assert main.main(["log", verb, str(missing)]) == 1
    assert capsys.readouterr().err == f"ottla: {missing}: no such file or directory\n"


@pytest.mark.parametrize("verb", ["dump", "verify"])
def test_paths_that_are_no_logs(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    assert main.main(["log", verb, str(tmp_path / "notes.txt")]) == 1
    assert "notes.txt: the name is not that of a log's file" in capsys.readouterr().err
    assert main.main(["log", verb, str(tmp_path)]) == 1
    assert "no file of a log is in this folder" in capsys.readouterr().err


def test_an_interrupt_ends_it_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_arguments: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "run", interrupted)
    assert main.main(["log"]) == 130
    assert capsys.readouterr().err == ""


def test_the_program_as_a_process(written_data: Path) -> None:
    ended = run_program("log", "verify", str(written_data))
    assert (ended.returncode, ended.stderr) == (0, "")
    ended = run_program("log", "verify", "missing")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr == "ottla: missing: no such file or directory\n"


def test_a_reader_that_leaves_early_is_no_error(written_data: Path) -> None:
    command = [*PROGRAM, "log", "dump", "--records", "--full", "--json", *[str(written_data)] * 50]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.readline()
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141


def test_the_help_loads_nothing_of_the_log() -> None:
    code = "import sys; from ottla.cli.main import main; main(['--help']); print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    modules = ended.stdout.splitlines()[-1].split()
    assert [name for name in modules if name.startswith(("ottla.log", "ottla.records", "ottla.cli.log"))] == []


@pytest.mark.parametrize("columns", ["", "40", "132", "0", "wide", "-7"])
def test_the_help_is_as_wide_as_the_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert parser.columns() == shutil.get_terminal_size().columns
