"""Spark's Java process ends, or has no memory: a plain sentence says what happened and what helps."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from ottla.cli import pipeline_run
from ottla.cli.errors import CommandFailed
from ottla.pipelines.tables import runner
from ottla.pipelines.tables.java_end import why_java_ended, why_memory
from ottla.pipelines.tables.runner import PipelineFailed, TableRun, run_pipeline
from tests.pipelines.tables.test_keep_house import House

HELPS = ("lower max_bytes_per_trigger", '"spark.driver.memory" = "4g"')


@pytest.fixture
def ends_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Stand in for Spark's process: another, that ends so."""

    def end(code: str) -> None:
        process = subprocess.Popen([sys.executable, "-c", f"import os, signal; {code}"])
        process.wait()
        monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))

    return end


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("os._exit(3)", "Spark's Java process has run out of memory and ended: "),
        ("os._exit(52)", "Spark's Java process has run out of memory and ended: "),
        ("os._exit(7)", "Spark's Java process has ended with exit code 7; "),
        ("os.kill(os.getpid(), 9)", "Spark's Java process was ended by signal 9; "),
    ],
)
def test_the_command_says_that_spark_has_ended(code: str, sentence: str, ends_with: Callable[[str], None]) -> None:
    ends_with(code)
    for error in (ConnectionRefusedError("refused"), Py4JNetworkError("Answer from Java side is empty")):
        with pytest.raises(CommandFailed) as failed, pipeline_run._errors_as_sentences():
            raise error
        assert str(failed.value).startswith(sentence)
        assert all(text in str(failed.value) for text in HELPS)


def test_a_pipeline_ends_with_spark_and_does_not_try_again(
    ends_with: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said: list[str] = []

    def die(*_: Any, **__: Any) -> Any:
        ends_with("os._exit(3)")
        raise ConnectionRefusedError("refused")

    monkeypatch.setattr(runner, "messages_after", die)
    spark: Any = None
    with pytest.raises(PipelineFailed, match="Spark's Java process has run out of memory"):
        run_pipeline(spark, House(tmp_path).pipeline, is_once=True, say=said.append)
    assert said == []


def test_a_batch_that_does_not_fit_is_not_tried_again(tmp_path: Path) -> None:
    for text, sentence in (
        ("java.lang.OutOfMemoryError: Java heap space", "a batch does not fit Spark's memory: lower max_bytes"),
        ("Total size ... is bigger than spark.driver.maxResultSize (1024.0 MiB)", "lower max_bytes_per_trigger, or "),
    ):
        run: TableRun = House(tmp_path / text[:4]).run
        query: Any = object()
        run._query = query
        run.applier.failure = RuntimeError(text)
        with pytest.raises(PipelineFailed, match=sentence):
            run._ended(is_once=True)
    assert why_memory(RuntimeError("connection refused")) is None


def test_without_spark_nothing_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert why_java_ended() is None
