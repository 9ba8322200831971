"""Seeds by hand: `python -m tests.sim --seeds 1000`, `python -m tests.sim --cluster --seed 7`.

A seed is one run, and the same whenever it is made again. Each seed that fails is shown with what happened.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback

from tests.sim import scenario_broker, scenario_cluster, scenario_growing, scenario_in_sync
from tests.sim.mistakes import BY_HAND, MISTAKES, OF_CLUSTERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description="Run brokers through simulated trouble.")
    parser.add_argument("--seed", type=int, help="this one alone, twice: both must be the same")
    parser.add_argument("--seeds", default="100", help="how many, or from-to")
    parser.add_argument("--cluster", action="store_true", help="three brokers in place of one")
    parser.add_argument("--growing", action="store_true", help="three brokers, and a topic that grows in order")
    parser.add_argument("--in-sync", action="store_true", help="three brokers, and trouble with who is in sync")
    mistakes = MISTAKES | OF_CLUSTERS | BY_HAND
    parser.add_argument("--mistake", choices=sorted(mistakes), help="make it, to see which seeds find it")
    options = parser.parse_args()
    if options.mistake is not None:
        mistakes[options.mistake]().__enter__()
    run = scenario_cluster.run if options.cluster else scenario_broker.run
    run = scenario_growing.run if options.growing else run
    run = scenario_in_sync.run if options.in_sync else run
    if options.seed is not None:
        fingerprints = [run(options.seed) for _ in range(2)]
        print(*fingerprints)
        return 0 if fingerprints[0] == fingerprints[1] else 1
    first, dash, last = options.seeds.partition("-")
    seeds = range(int(first), int(last)) if dash else range(int(first))
    started = time.perf_counter()
    failed: list[int] = []
    for seed in seeds:
        try:
            run(seed)
        except Exception:
            traceback.print_exc()
            failed.append(seed)
            print(f"seed {seed} failed", flush=True)
    seconds = time.perf_counter() - started
    print(f"{len(seeds)} seeds in {seconds:.1f} s, {len(failed)} failed: {failed[:50]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
