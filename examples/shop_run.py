"""A shop, a broker and a pipeline as processes of their own, which can be killed and started again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

PIPELINE = """\
bootstrap = "{bootstrap}"
trigger_seconds = 0.5
engine = "{engine}"

[spark]
{spark}

[[tables]]
source = "shop.customers"
target = "{lake}/customers"
keys = ["id"]
buckets = 4
check_against = "{check_against}customers"

[[tables]]
source = "shop.orders"
target = "{lake}/orders_history"
keys = ["id"]
stored_as_scd_type = 2
buckets = 4
check_against = "{check_against}orders"
"""


@dataclass(frozen=True)
class Place:
    """Where the pipeline runs and what keeps its tables; `lake` is the folder they are in, or a URL."""

    master: str = "local[2]"
    engine: str = "deltalake"
    lake: str = "lake"
    spark: Mapping[str, str] = field(default_factory=dict)


HERE = Place()


class ShopRun:
    """Everything in one folder. `progress` grows while the pipeline runs; `kills` are (time, what)."""

    check_against = "shop.db:"

    def __init__(
        self, folder: Path, *, transactions: int, rate: float, seed: int, keys: int = 5_000, place: Place = HERE
    ) -> None:
        self.folder = folder
        self.place = place
        self.progress: list[dict[str, Any]] = []
        self.kills: list[tuple[float, str]] = []
        self.said: list[str] = []
        self._shop_options = [*("--transactions", str(transactions)), *("--rate", str(rate)), *("--seed", str(seed))]
        self._shop_options += ["--keys", str(keys)]
        self._port = 0
        self.broker: subprocess.Popen[str] | None = None
        self.shop: subprocess.Popen[bytes] | None = None
        self.pipeline: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start_broker(self) -> None:
        command = [*_python("-m", "ottla", "serve"), *("--data", str(self.folder / "broker"), "--log-level", "error")]
        command += ["--listen", f"127.0.0.1:{self._port}", "--set", "num.partitions=2"]
        if self.broker is not None and self.broker.stdout is not None:
            self.broker.stdout.close()
        self.broker = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.broker.stdout is not None
        line = self.broker.stdout.readline()
        found = re.search(r"on \S+?:(\d+),", line)
        assert found is not None, line
        self._port = int(found[1])

    def prepare(self) -> None:
        """The topics, and the pipeline's file."""
        for topic in ("shop.customers", "shop.orders"):
            command = _python("-m", "ottla", "topics", "create", topic, "--partitions", "2")
            subprocess.run([*command, "--bootstrap", self.bootstrap], check=True, stdout=subprocess.DEVNULL)
        configs = {"spark.driver.memory": "1g", **self.place.spark}
        spark = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in configs.items())
        text = PIPELINE.format(
            bootstrap=self.bootstrap,
            engine=self.place.engine,
            lake=self.place.lake,
            spark=spark,
            check_against=self.check_against,
        )
        (self.folder / "shop.toml").write_text(text)

    def target(self, name: str) -> str:
        """The path of a table."""
        lake = self.place.lake
        return f"{lake}/{name}" if "://" in lake else str(self.folder / lake / name)

    def start_shop(self) -> None:
        script = str(Path(__file__).parent / "shop.py")
        command = [*_python(script), "--database", str(self.folder / "shop.db"), "--bootstrap", self.bootstrap]
        command += ["--until", str(self.folder / "closed")]
        self.shop = subprocess.Popen([*command, *self._shop_options])

    def start_pipeline(self) -> None:
        command = [*_python("-m", "ottla", "pipeline", "run"), "shop.toml", "--json", "--master"]
        command.append(self.place.master)
        self.pipeline = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for stream, into in ((self.pipeline.stdout, self._heard), (self.pipeline.stderr, self.said.append)):
            assert stream is not None
            threading.Thread(target=_listen, args=(stream, into), daemon=True).start()

    def _heard(self, line: str) -> None:
        self.progress.append(json.loads(line))

    def kill(self, what: str) -> bool:
        """kill -9 of the broker, the shop, the driver, its Java side or a Python worker; whether there was one."""
        process = {"broker": self.broker, "shop": self.shop}.get(what, self.pipeline)
        assert process is not None
        chosen = [process.pid]
        if what == "java":
            chosen = [pid for pid in descendants(process.pid) if "java" in command_of(pid).split(" ")[0]]
        elif what == "worker":
            chosen = [pid for pid in descendants(process.pid) if "pyspark.daemon" in command_of(pid)][-1:]
        for pid in chosen:
            os.kill(pid, signal.SIGKILL)
        if chosen:
            self.kills.append((time.time(), what))
        return bool(chosen)

    def close_shop(self) -> None:
        """No more transactions; what there is is sent, then the shop ends."""
        (self.folder / "closed").touch()

    def lag(self) -> int | None:
        """Records that the tables are behind, as far as the pipeline has told since it was started last."""
        last: dict[str, dict[str, Any]] = {}
        for told in self.progress[-4:]:
            last[told["table"]] = told
        lags = [told["lag_records"] for told in last.values()]
        return None if len(lags) < 2 or None in lags else sum(lags)

    def stop(self) -> None:
        """Let the pipeline end well, and the rest, too."""
        for process in (self.pipeline, self.shop, self.broker):
            if process is not None and process.poll() is None:
                process.terminate()
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        if self.broker is not None and self.broker.stdout is not None:
            self.broker.stdout.close()


def _listen(stream: IO[str], into: Callable[[str], None]) -> None:
    with stream:
        for line in stream:
            into(line)


def _python(*arguments: str) -> list[str]:
    return [sys.executable, *arguments]


def descendants(pid: int) -> list[int]:
    """All processes below this one, parents first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, ahead = [], [pid]
    while ahead:
        below = children.get(ahead.pop(0), [])
        found += below
        ahead += below
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""
