"""`ottla serve` that tells how long its loop was away at most: in CPU time, so that a busy machine changes little.

After SIGUSR1 it prints that at the end of the next round, on a line of its own, in seconds, and begins anew.
"""

from __future__ import annotations

import signal
import sys
import time

from ottla.broker.loop import loop as loops
from ottla.cli.main import main


class CpuRound(loops.LongestRound):
    """The longest round since somebody asked."""

    def __init__(self, _clock: object) -> None:
        super().__init__(time.thread_time)
        self._is_asked = False
        signal.signal(signal.SIGUSR1, self._ask)

    def _ask(self, _number: int, _frame: object) -> None:
        self._is_asked = True

    def ended(self, started: float) -> None:
        super().ended(started)
        if self._is_asked:
            print(f"{self.ever:.6f}", flush=True)
            self.__init__(None)  # type: ignore[misc]


if __name__ == "__main__":
    loops.LongestRound = CpuRound  # type: ignore[misc,assignment]
    sys.exit(main(sys.argv[1:]))
