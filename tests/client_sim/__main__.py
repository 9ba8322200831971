"""Seeds by hand: `python -m tests.client_sim producer --seed 7`, `python -m tests.client_sim --seeds 0-2000`.

A scenario is a module `scenario_NAME.py` beside this one with `run(seed: int) -> None`, which raises when something is
wrong. A seed is one run: it is the same whenever it is made again. The first seed that fails is shown whole, with what
happened on the network.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import traceback
from pathlib import Path


def names() -> list[str]:
    return sorted(path.stem.removeprefix("scenario_") for path in Path(__file__).parent.glob("scenario_*.py"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.client_sim", description="Run the client through its seeds.")
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"of {', '.join(names())}; all without one")
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--seeds", default="0-300", help="from-to")
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    seeds = range(int(first), int(last or first)) if options.seed is None else [options.seed]
    failures = sum(_run(name, seeds) for name in options.scenarios or names())
    return 1 if failures else 0


def _run(name: str, seeds: range | list[int]) -> int:
    module = importlib.import_module(f"tests.client_sim.scenario_{name}")
    started = time.perf_counter()
    failed: list[int] = []
    for seed in seeds:
        try:
            module.run(seed)
        except Exception:
            if not failed:
                traceback.print_exc()
            failed.append(seed)
            print(f"{name}: seed {seed} failed", flush=True)
    seconds = time.perf_counter() - started
    print(f"{name}: {len(seeds)} seeds in {seconds:.1f} s, {len(failed)} failed: {failed[:20]}")
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
