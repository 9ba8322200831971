"""A run by hand: `python -m tests.checker --seconds 300 --seed 7`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.checker.run import Run
from tests.compat.killable import killable_broker


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.checker", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ottla-checker-"))
    print(f"seed {arguments.seed}, the history and the broker's data are in {folder}", flush=True)
    with killable_broker(folder / "broker") as broker:
        report = Run(broker, folder, arguments.seed).execute(arguments.seconds)
    print(report)
    return 1 if report.anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
