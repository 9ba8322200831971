"""Ottla, end to end: every change of a shop on SQLite, through a broker, into lake tables by Spark; with kills."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lag_picture import draw_lag
from shop_run import ShopRun

TRANSACTIONS = 12_000
RATE = 600
PATIENCE_SECONDS = 300


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def wait_for(condition: object, what: str, run: ShopRun) -> None:
    until = time.monotonic() + PATIENCE_SECONDS
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            sys.exit(f"waited too long for {what}; the pipeline said:\n{''.join(run.said)}")
        time.sleep(0.1)


def moved(run: ShopRun) -> object:
    """Whether the tables get changes, from now on."""
    since = len(run.progress)
    return lambda: any(told["rate"] > 0 for told in run.progress[since:])


def main() -> None:
    begun = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="ottla-demo-"))
    run = ShopRun(folder, transactions=TRANSACTIONS, rate=RATE, seed=2026)
    try:
        run.start_broker()
        run.prepare()
        say(f"a broker listens on {run.bootstrap}")
        run.start_pipeline()
        say("the pipeline starts: shop.customers -> lake/customers, shop.orders -> lake/orders_history")
        wait_for(lambda: run.progress, "Spark to start", run)
        run.start_shop()
        say(f"the shop opens: {TRANSACTIONS:,} transactions of inserts, updates and deletes, {RATE} a second")
        wait_for(moved(run), "the first changes in the tables", run)
        run.kill("driver")
        say("kill -9 of the pipeline, while it writes")
        run.start_pipeline()
        wait_for(moved(run), "changes after the kill of the pipeline", run)
        run.kill("broker")
        say("kill -9 of the broker")
        run.start_broker()
        assert run.shop is not None
        wait_for(lambda: run.shop.poll() is not None, "the shop to close", run)
        told = len(run.progress)
        wait_for(lambda: len(run.progress) > told + 2 and run.lag() == 0, "the tables to be level", run)
        say("the shop has closed, and the tables have all of it")
    finally:
        run.stop()
    show(run, time.monotonic() - begun)


def show(run: ShopRun, seconds: float) -> None:
    command = [sys.executable, "-m", "ottla", "pipeline", "verify", "shop.toml"]
    verified = subprocess.run(command, cwd=run.folder, capture_output=True, text=True)
    say("source and tables, row by row:")
    print(verified.stdout.replace(f"{run.folder}/", "") + verified.stderr, end="")
    rates = [told["rate"] for told in run.progress if told["rate"] > 0]
    picture = run.folder / "lag.svg"
    draw_lag(picture, run.progress, run.kills)
    say(f"up to {max(rates):,.0f} changes a second into a table; {seconds:.0f} s in all")
    print(f"  the lag over time    {picture}\n  the tables           {run.folder}/lake")
    print(f"  the pipeline         {run.folder}/shop.toml\n  the shop             {run.folder}/shop.db")
    print("Look into them:  .venv/bin/ottla pipeline status FILE, or any reader of Delta tables; docs/pipelines.md")
    sys.exit(verified.returncode)


if __name__ == "__main__":
    main()
