"""kill -9 of everything, again and again, while changes flow; at the end the tables are what the source is.

python -m tests.pipelines.tables.kills --seconds 600 --seed 7
python -m tests.pipelines.tables.kills --seconds 600 --engine delta-spark --hdfs
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from examples.shop_run import HERE, Place, ShopRun
from ottla.pipelines import read_arrow
from ottla.pipelines.tables.position import decode_position
from tests.pipelines.hdfs import Hdfs
from tests.pipelines.jars import delta_jars

VICTIMS = ("driver", "java", "worker", "shop", "broker")
PATIENCE_SECONDS = 600
# Transactions a second: what the engine keeps up with on two cores that others use, too.
RATES = {"deltalake": 300, "delta-spark": 50}


Kills = Mapping[str, Callable[[], None]]


def wait_until(condition: Callable[[], bool], what: str, run: ShopRun, seconds: float = PATIENCE_SECONDS) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"waited too long: {what}; the pipeline said {run.said[-20:]}"
        time.sleep(0.1)


def expected_versions(database: sqlite3.Connection, name: str) -> set[tuple[Any, ...]]:
    """Every version of every row, from the shop's own audit: key, values, from, to."""
    found: set[tuple[Any, ...]] = set()
    alive: dict[int, tuple[int, dict[str, Any]]] = {}

    def end(key: int, position: int) -> None:
        if key in alive:
            start, row = alive.pop(key)
            found.add((*row.values(), start, position))

    query = "SELECT position, op, before, after FROM audit WHERE name = ? ORDER BY position"
    for position, _, before, after in database.execute(query, (name,)):
        old, new = (None if text is None else json.loads(text) for text in (before, after))
        for row in (old, new):
            if row is not None:
                end(row["id"], position)
        if new is not None:
            alive[new["id"]] = (position, new)
    return found | {(*row.values(), start, None) for start, row in alive.values()}


def versions_in(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(*(row[name] for name in ("id", "customer", "amount", "state")), *map(_number, _ends(row))) for row in rows]


def _ends(row: dict[str, Any]) -> tuple[str, str | None]:
    return row["__START_AT"], row["__END_AT"]


def _number(position: str | None) -> int | None:
    return None if position is None else int(decode_position(position)[0])


def check(run: ShopRun) -> None:
    """Row by row, and version by version."""
    database = sqlite3.connect(run.folder / "shop.db")
    customers = sorted(database.execute("SELECT id, name, city, credit FROM customers"))
    rows = read_arrow(run.target("customers")).to_pylist()
    found = sorted((row["id"], row["name"], row["city"], row["credit"]) for row in rows)
    assert found == customers
    versions = versions_in(read_arrow(run.target("orders_history")).to_pylist())
    assert len(versions) == len(set(versions))
    assert set(versions) == expected_versions(database, "orders")
    assert customers
    assert versions


def restart(run: ShopRun, victim: str) -> None:
    if victim == "broker":
        assert run.broker is not None
        run.broker.wait()
        run.start_broker()
    if victim in ("driver", "java"):
        assert run.pipeline is not None
        if victim == "driver":  # its Java side has lost its driver, and may still be writing
            run.pipeline.wait()
            run.start_pipeline()
    if victim == "shop":
        assert run.shop is not None
        run.shop.wait()
        run.start_shop()


def disturb(run: ShopRun, victims: list[str], chance: random.Random, kills: Kills) -> None:
    """Kill them one after another, each when the tables have moved on since the last."""
    for victim in victims:
        before = len(run.progress)
        wait_until(partial(_moved, run, before), f"the tables to move on before {victim}", run)
        time.sleep(chance.random())
        if victim in kills:
            kills[victim]()
            run.kills.append((time.time(), victim))
            continue
        if not run.kill(victim):
            continue
        restart(run, victim)
        if victim == "java":  # the pipeline ends by itself with an error, and is started by whoever watches it
            assert run.pipeline is not None
            run.pipeline.wait(PATIENCE_SECONDS)
            run.start_pipeline()


def _moved(run: ShopRun, since: int) -> bool:
    return any(told["rate"] > 0 for told in run.progress[since:])


def finish(run: ShopRun) -> None:
    assert run.shop is not None
    run.close_shop()
    wait_until(lambda: run.shop is not None and run.shop.poll() is not None, "the shop to end", run)
    assert run.shop.returncode == 0
    told = len(run.progress)
    wait_until(lambda: len(run.progress) > told + 2 and run.lag() == 0, "the tables to be level", run)


def storm(
    folder: Path, victims: list[str], *, rate: float, seed: int,
    place: Place = HERE, kills: Kills | None = None,
) -> ShopRun:  # fmt: skip
    """A run of changes with these kills in it; the tables are checked at its end. `kills` are victims of one's own."""
    run = ShopRun(folder, transactions=10**9, rate=rate, seed=seed, keys=500, place=place)
    try:
        run.start_broker()
        run.prepare()
        run.start_shop()
        run.start_pipeline()
        disturb(run, victims, random.Random(seed), kills or {})
        finish(run)
    finally:
        run.stop()
    check(run)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("deltalake", "delta-spark"), default="deltalake")
    parser.add_argument("--hdfs", action="store_true", help="the tables on an HDFS of the run's own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ottla-hdfs-") as folder, contextlib.ExitStack() as stack:
        lake = f"{stack.enter_context(Hdfs(Path(folder))).url}/lake" if options.hdfs else "lake"
        spark = {"spark.jars": delta_jars()} if options.engine == "delta-spark" else {}
        _run_for(options.seconds, options.seed, Place(engine=options.engine, lake=lake, spark=spark))


def _run_for(seconds: float, seed: int, place: Place) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        chance = random.Random(seed)
        victims = chance.sample(VICTIMS * 2, 6)
        print(f"seed {seed}: {', '.join(victims)}", flush=True)
        with tempfile.TemporaryDirectory(prefix="ottla-kills-") as folder:
            here = replace(place, lake=f"{place.lake}/{seed}")
            run = storm(Path(folder), victims, rate=RATES[place.engine], seed=seed, place=here)
            verified = [sys.executable, "-m", "ottla", "pipeline", "verify", str(Path(folder) / "shop.toml")]
            print(subprocess.run(verified, capture_output=True, text=True, check=True).stdout, end="")
            print(f"equal after {len(run.kills)} kills", flush=True)
        seed += 1


if __name__ == "__main__":
    main()
