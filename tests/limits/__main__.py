"""`python -m tests.limits`: measures the worst request of each API, and writes the table of docs/limits.md.

`python -m tests.limits OffsetFetch JoinGroup`: only these, and nothing is written.
"""

from __future__ import annotations

import sys

from tests.limits.measure import measure
from tests.limits.page import write_table
from tests.limits.world import FULL
from tests.limits.worst import WORST

if __name__ == "__main__":
    measured = []
    apis = sys.argv[1:] or list(WORST)
    for row in measure(FULL, apis):
        print(
            f"{row.api:26} {row.round_seconds * 1000:6.1f} ms, request {row.request}; {row.peak_bytes >> 20} MB",
            flush=True,
        )
        measured.append(row)
    if len(measured) == len(WORST):
        write_table(measured)
