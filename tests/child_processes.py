"""Processes that end with the one that started them, however that ends."""

from __future__ import annotations

import ctypes
import signal
import sys

SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


def die_with_parent() -> None:
    """To be called in the new process. Where the system has no such thing, whoever starts it has to end it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
