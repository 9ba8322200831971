"""Work in slices, run to its end at once."""

from __future__ import annotations

from ottla.log.housekeeping import Slices


def run_here(slices: Slices) -> None:
    """Run slices to their end, jobs and all, on this thread."""
    failed: OSError | None = None
    while True:
        try:
            job = next(slices) if failed is None else slices.throw(failed)
        except StopIteration:
            return
        failed = None
        try:
            if job is not None:
                job()
        except OSError as error:
            failed = error
