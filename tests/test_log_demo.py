"""The demo of the log: it runs, and what it claims is so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parent.parent / "examples" / "log_demo.py"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the demo prints, by the first words of each part's title."""
    temporary = tmp_path_factory.mktemp("demo")
    ended = subprocess.run(
        [sys.executable, str(DEMO)],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"TMPDIR": str(temporary)},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"in {temporary}/ottla-demo-" in ended.stdout.splitlines()[0]
    assert list(temporary.iterdir()) == []
    return {part.split(":", 1)[0]: part for part in ended.stdout.split("\n== ")[1:]}


def test_it_shows_segments_and_indexes(parts: dict[str, str]) -> None:
    bases = [int(base) for base in re.findall(r"(\d{20})\.log\n", parts["Look"].split("\nIts batches")[0])]
    assert bases[0] == 0
    assert len(bases) == 3
    assert "zstd" in parts["Look"]
    assert "offset index\n" in parts["Look"]
    assert "time index\n" in parts["Look"]


def test_it_reads_back_by_offset_and_by_time(parts: dict[str, str]) -> None:
    first = parts["Read by offset"].splitlines()[2].split()
    assert first[:3] == ["142", "22:41:22", "Oslo"]  # five records a minute from 22:13:20 on
    [_, found, *_] = parts["Read by time"].splitlines()
    assert found.split()[:3] == ["85", "22:30:20", "Brno"]


def test_a_torn_write_is_found_and_healed(parts: dict[str, str]) -> None:
    place = re.search(r"byte (\d+): the batch says \d+ bytes, (\d+) are left", parts["A torn write"])
    assert place is not None
    assert f"byte {place[1]}: " in parts["Open it"]
    assert f"cut    {place[2]} bytes; the log now ends with offset 294" in parts["Open it"]
    assert "it ends with offset 299" in parts["Open it"]


def test_compaction_keeps_the_newest_of_each_key(parts: dict[str, str]) -> None:
    assert re.search(r"300 records in [\d,]+ bytes became 55 in", parts["Compact it"])
    assert "5 for the cities, 50 in the segment in use" in parts["Compact it"]


def test_a_flipped_bit_is_found(parts: dict[str, str]) -> None:
    flipped = parts["A flipped bit"]
    assert len(re.findall(r"^WRONG ", flipped, re.MULTILINE)) == 1
    assert re.search(r"byte \d+: checksum is 0x[0-9a-f]{8}, the header says", flipped)
    assert "1 of them wrong" in flipped
