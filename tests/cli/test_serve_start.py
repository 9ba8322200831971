"""How soon a broker is there is decided by what it imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SLOW_AND_NOT_NEEDED = {
    *("asyncio", "base64", "email", "http", "importlib.metadata", "ipaddress", "pathlib", "pkgutil", "platform"),
    *("shutil", "subprocess", "tempfile", "tomllib", "urllib", "uuid", "zipfile"),
    *("crc32c", "cramjam", "lz4", "pyarrow", "re2", "zstandard"),
    *("ottla.broker.coordinator", "ottla.broker.http", "ottla.client", "ottla.coordinator"),
}

SERVE = """
import sys
from ottla.broker import loop

class Once(loop.Loop):
    def run(self):
        print(*sys.modules, flush=True)

loop.Loop = Once
from ottla.cli.serve import run
run(sys.argv[1:])
"""


def test_a_broker_that_is_ready_has_loaded_nothing_slow(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SERVE, "--listen", "127.0.0.1:0", "--data", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    _, modules = ended.stdout.splitlines()
    assert SLOW_AND_NOT_NEEDED & set(modules.split()) == set()
