"""Spark's Java process that ended, or had no memory left: what happened, and what helps."""

from __future__ import annotations

import signal
import subprocess
from typing import Any

_ADVICE = (
    'lower max_bytes_per_trigger, which each table has for itself, or give Spark more memory: "spark.driver.memory" = '
    '"4g" under [spark]'
)
_OUT_OF_MEMORY = "OutOfMemoryError"
_MOST_RESULT = "spark.driver.maxResultSize"
_EXITS_OF_MEMORY = (3, 52)  # of the Java machine, and of Spark itself
_TOLD = (signal.SIGTERM, signal.SIGINT)
_END_SECONDS = 5.0


def why_java_ended() -> str | None:
    """The sentence, if this process has started Spark's and it is gone."""
    process = _process()
    if process is None:
        return None
    code = process.poll()
    if code is None:
        return None
    if code in _EXITS_OF_MEMORY:
        return f"Spark's Java process has run out of memory and ended: {_ADVICE}"
    how = f"was ended by signal {-code}" if code < 0 else f"has ended with exit code {code}"
    return f"Spark's Java process {how}; if it was short of memory, {_ADVICE}"


def was_java_told_to_end() -> bool:
    """Whoever ends a service often sends the signal to all of its processes. Asked after Java did not answer."""
    process = _process()
    if process is None:
        return False
    try:
        code = process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        return False
    return any(code in (-number, 128 + number) for number in _TOLD)


def why_memory(error: BaseException) -> str | None:
    """The sentence, if it was memory: the same batch would fail again."""
    text = str(error)
    if _OUT_OF_MEMORY in text:
        return f"a batch does not fit Spark's memory: {_ADVICE}"
    if _MOST_RESULT in text:
        return f'a batch is larger than "{_MOST_RESULT}": lower max_bytes_per_trigger, or raise that under [spark]'
    return None


def _process() -> Any:
    from pyspark import SparkContext

    return getattr(SparkContext._gateway, "proc", None)
