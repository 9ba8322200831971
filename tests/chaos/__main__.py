"""A run by hand: `python -m tests.chaos --minutes 10 --store zookeeper --seed 7`."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from tests.chaos import network
from tests.chaos.broken_broker import MISTAKES
from tests.chaos.run import run_chaos


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--store", choices=("zookeeper", "local"), default="zookeeper")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--folder", type=Path, help="for histories and logs (default: a new one)")
    parser.add_argument("--proxies", action="store_true", help="cut the network without namespaces")
    parser.add_argument("--mistake", choices=sorted(MISTAKES), help="that all brokers make, to see that it is found")
    arguments = parser.parse_args()
    if network.INSIDE not in os.environ:
        reason = "it is asked for" if arguments.proxies else network.missing()
        if reason is None:
            network.go_inside("tests.chaos", sys.argv[1:])
        print(f"the network is cut by proxies, and no disk is filled: {reason}", flush=True)
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="ottla-chaos-"))
    print(f"seed {arguments.seed} with {arguments.store}, histories and logs are in {folder}", flush=True)
    is_inside = network.INSIDE in os.environ
    report = run_chaos(
        folder,
        arguments.minutes * 60,
        arguments.seed,
        arguments.store,
        has_namespaces=is_inside,
        mistake=arguments.mistake,
    )
    print(report)
    return 1 if report.anomalies or report.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
