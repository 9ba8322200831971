"""A soak by hand: `python -m tests.soak --seconds 3600`."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

from tests.soak.run import soak


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ottla-soak-"))
    print(f"seed {arguments.seed}, histories are in {folder}", flush=True)
    report, growth = soak(folder, arguments.seconds, arguments.seed)
    print(report)
    print(growth)
    return 1 if report.anomalies or growth.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
