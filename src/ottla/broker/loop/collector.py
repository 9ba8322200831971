"""The garbage collector of a broker: it looks at new objects, a few at a time, and never again at old ones.

To look at everything takes 0.2 us an object, and a million committed offsets are eight million objects. What a request
makes is freed without the collector, because it leaves no cycles. So objects that have lived through three collections
are exempt from all later ones.
"""

from __future__ import annotations

import gc

THRESHOLDS = (2_000, 1, 1)
"""New objects before the first look. The second is at 4,000, and the third at 8,000 or so: 2 ms, 10 on a busy machine.

Larger numbers save nothing, for each object is looked at three times in any case.
"""
LAST_GENERATION = 2


def calm_collector() -> None:
    """Put aside what is there, and from now on what stays."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    if _looked not in gc.callbacks:
        gc.callbacks.append(_looked)


def _looked(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == LAST_GENERATION:
        gc.freeze()
