"""The tutorial, line by line, in an empty folder."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

TUTORIAL = Path(__file__).parents[3] / "docs" / "tutorial-pipeline.md"


def test_its_lines_lead_to_a_table_that_equals_its_source(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    text = TUTORIAL.read_text().replace("19092", str(port))
    for kind, name in (("python", "shop.py"), ("toml", "shop.toml")):
        (tmp_path / name).write_text(re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[0])
    script = "set -e\n" + "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
    script = script.replace("kill %1", "kill $!")
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", f"trap 'kill $!' EXIT\n{script}trap - EXIT"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "customers: equal: 2 rows" in ended.stdout
    assert "{'id': 2, 'name': 'Bo', 'city': 'Oslo'}" in ended.stdout
