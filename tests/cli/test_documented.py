"""docs/log-files.md shows what the commands really print."""

import json
import re
from pathlib import Path

import pytest

from ottla.cli.main import main
from tests.cli.documented import PAGE, blocks, write_documented_folder


@pytest.mark.parametrize(
    ("arguments", "output"), blocks(), ids=lambda shown: " ".join(shown) if isinstance(shown, list) else ""
)
def test_the_page_shows_what_the_command_prints(
    arguments: list[str],
    output: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_documented_folder(Path("data"))
    assert main(arguments) == 0
    assert capsys.readouterr().out.rstrip("\n") == output.rstrip("\n")


def test_the_page_shows_every_kind_of_file() -> None:
    shown = " ".join(argument for arguments, _ in blocks() for argument in arguments)
    for ending in (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "-checkpoint", ".metadata", "log verify"):
        assert ending in shown


def test_the_page_lists_the_fields_of_each_type(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_documented_folder(tmp_path / "data")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "00000000000000000000.log").write_bytes(b"torn")
    main(["log", "dump", "--json", "--records", str(tmp_path / "data"), str(tmp_path / "torn")])
    main(["log", "verify", "--json", str(tmp_path / "data")])
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    fields = {row["type"]: list(row.keys() - {"type"}) for row in printed}
    listed = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE))
    assert listed.keys() == fields.keys()
    for kind, names in fields.items():
        expected = set(names) if kind in ("file", "summary") else set(names) - {"path"}
        assert expected <= set(re.findall(r"`(\w+)`", listed[kind])), kind
