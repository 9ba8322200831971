"""`python -m tests.limits`: measures the worst request of each API, and writes the table of docs/limits.md."""

from __future__ import annotations

from tests.limits.measure import measure
from tests.limits.page import write_table
from tests.limits.world import FULL

if __name__ == "__main__":
    measured = []
    for row in measure(FULL):
        print(f"{row.api:26} {row.round_seconds * 1000:6.1f} ms, request {row.request}", flush=True)
        measured.append(row)
    write_table(measured)
