"""What the verbs of `ottla pipeline` do."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.broker_options import sentence_of
from ottla.cli.errors import FAILED, CommandFailed
from ottla.cli.table import counted, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.pipelines.tables.pipeline import Pipeline, Table
    from ottla.pipelines.tables.runner import Progress
    from ottla.pipelines.tables.verify import Report


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    """What pipelines and Spark raise, as the sentence that ends the command."""
    from ottla.client import ClientError

    try:
        from ottla.pipelines.java import JavaMissing
        from ottla.pipelines.session import SparkMissing
        from ottla.pipelines.tables.java_end import why_java_ended, why_memory
        from ottla.pipelines.tables.pipeline import PipelineRefused
        from ottla.pipelines.tables.plain_table import StoreFailed
        from ottla.pipelines.tables.reasons import first_line
        from ottla.pipelines.tables.runner import FINAL, PipelineFailed
    except ModuleNotFoundError as error:
        raise CommandFailed(f"{error.name} is not installed: \"pip install 'ottla[spark]'\"") from None
    try:
        yield
    except ClientError as error:
        raise CommandFailed(sentence_of(error)) from None
    except (PipelineRefused, PipelineFailed, StoreFailed, JavaMissing, SparkMissing, *FINAL) as error:
        raise CommandFailed(str(error)) from None
    except Exception as error:
        reason = why_java_ended() or why_memory(error)
        if reason is not None:
            raise CommandFailed(reason) from None
        if type(error).__module__.startswith(("pyspark", "py4j", "deltalake", "_internal", "pyarrow")):
            raise CommandFailed(first_line(error)) from None
        raise


def _load(options: argparse.Namespace) -> Pipeline:
    from ottla.pipelines.tables.pipeline import load_pipeline

    return load_pipeline(Path(options.file))


def _chosen(options: argparse.Namespace, pipeline: Pipeline) -> tuple[Table, ...]:
    return pipeline.tables if options.table is None else (pipeline.table(options.table),)


def _session(options: argparse.Namespace, pipeline: Pipeline) -> SparkSession:
    from ottla.pipelines.session import spark_session
    from ottla.pipelines.tables.session_configs import session_configs

    # What it logs when Java is gone are stacks; the command ends with a sentence.
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    logging.getLogger().addFilter(lambda record: False)  # what it logs by no logger's name; others are not asked
    session = spark_session(options.master, name=f"ottla-{pipeline.name}", configs=session_configs(pipeline))
    session.sparkContext.setLogLevel("OFF")
    accumulators: Any = session.sparkContext._accumulatorServer
    accumulators.handle_error = lambda *_: None
    return session


def _await_topics(pipeline: Pipeline, tables: Sequence[Table], stops: Callable[[], bool] = lambda: False) -> None:
    """Before Spark starts: a wrong address or name is told at once, and not behind its own messages."""
    from ottla.pipelines.tables.topic_ends import await_topics

    await_topics(pipeline.bootstrap, [each.source for each in tables], pipeline.start_seconds, stops)


def run(options: argparse.Namespace) -> int:
    with _errors_as_sentences():
        from ottla.pipelines.tables.runner import run_pipeline

        pipeline = _load(options)
        pipeline = replace(pipeline, tables=_chosen(options, pipeline))
        stopping: list[int] = []
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _: stopping.append(number))
        _await_topics(pipeline, pipeline.tables, lambda: bool(stopping))
        spark = _session(options, pipeline)
        for number in (signal.SIGINT, signal.SIGTERM):  # py4j has put its own handler of SIGINT there
            signal.signal(number, lambda number, _: stopping.append(number))
        run_pipeline(
            spark,
            pipeline,
            is_once=options.once,
            tell=_tell_json if options.json else _tell_line,
            say=lambda text: print(f"ottla: {text}", file=sys.stderr, flush=True),
            should_stop=lambda: bool(stopping),
        )
        _end(spark, is_told=bool(stopping))
    return 0


def _end(spark: SparkSession, *, is_told: bool) -> None:
    from py4j.protocol import Py4JError

    from ottla.pipelines.tables.java_end import was_java_told_to_end

    try:
        spark.stop()
    except (Py4JError, OSError):
        if not (is_told and was_java_told_to_end()):
            raise


def _tell_json(progress: Progress) -> None:
    print(progress.to_json(), flush=True)


def _tell_line(progress: Progress) -> None:
    lag = "lag unknown" if progress.lag_records is None else f"lag {counted(progress.lag_records, 'record')}"
    if progress.lag_seconds is not None:
        lag += f", {progress.lag_seconds:.1f} s"
    commit = "none" if progress.last_commit is None else _clock(progress.last_commit)
    bad = f"  bad {progress.bad:,}" if progress.bad else ""
    print(
        f"{_clock(progress.time)}  {progress.table}  {progress.applied:,} changes  {progress.rate:,.0f}/s  {lag}  "
        f"last commit {commit}{bad}",
        flush=True,
    )


def _clock(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%H:%M:%S")


def status(options: argparse.Namespace) -> int:
    with _errors_as_sentences():
        from ottla.pipelines.tables.status import ago
        from ottla.pipelines.tables.status import status as status_of

        pipeline = _load(options)
        found = [status_of(pipeline, each) for each in _chosen(options, pipeline)]
        if options.json:
            for one in found:
                print(json.dumps(asdict(one)))
            return 0
        heading = ("TABLE", "TOPIC", "ROWS FOLDED", "CHANGES WAITING", "LAG", "LAST COMMIT", "LAST FOLD")
        rows = [
            (
                one.table,
                one.source,
                one.rows_folded if one.exists else "not there yet",
                one.changes_waiting if one.exists else None,
                one.lag_records,
                ago(one.last_commit),
                ago(one.last_fold),
            )
            for one in found
        ]
        print("\n".join(table(heading, rows)))
        for one in found:
            if one.problem:
                print(f"ottla: {one.table}: {one.problem}", file=sys.stderr)
    return 0


def rebuild(options: argparse.Namespace) -> int:
    with _errors_as_sentences():
        from ottla.pipelines.tables.rebuild import rebuild as make

        pipeline = _load(options)
        chosen = _chosen(options, pipeline)
        if options.to is not None and len(chosen) != 1:
            raise CommandFailed("--to is for one table: name it with --table")
        if options.as_of is not None and options.to is None:
            raise CommandFailed("--as-of needs --to: a table as of a time has a path of its own")
        _await_topics(pipeline, chosen)
        spark = _session(options, pipeline)
        for each in chosen:
            changes = make(spark, pipeline, each, options.to, as_of_ms=options.as_of)
            told = {"table": each.name, "target": options.to or each.target, "changes": changes}
            print(json.dumps(told) if options.json else f"{told['target']}: {counted(changes, 'change')} applied")
        spark.stop()
    return 0


def verify(options: argparse.Namespace) -> int:
    with _errors_as_sentences():
        from ottla.pipelines.tables.verify import verify_sqlite

        pipeline = _load(options)
        code = 0
        for each in _chosen(options, pipeline):
            against = options.against or each.check_against or "topic"
            if against == "topic":
                report = _verify_with_topic(options, pipeline, each)
            elif against.startswith("mysql://"):
                report, against = _verify_with_mysql(pipeline, each, against)
            else:
                report = verify_sqlite(each.target, against, pipeline.storage_options)
            _tell_report(each.name, against, report, is_json=options.json)
            code = code if report.is_equal else FAILED
    return code


def _verify_with_mysql(pipeline: Pipeline, each: Table, url: str) -> tuple[Report, str]:
    """The report, and the table's name without who asks for it, and with which password."""
    try:
        from ottla.connect.interface import ConnectorRefused
        from ottla.connect.mysql.rows import read_rows
    except ModuleNotFoundError as error:
        raise CommandFailed(f"{error.name} is not installed: pip install 'ottla[mysql]'") from None
    from ottla.pipelines.tables.verify import verify_rows

    try:
        name, rows = read_rows(url)
    except ConnectorRefused as error:
        raise CommandFailed(str(error)) from None
    return verify_rows(each.target, rows, name, pipeline.storage_options), name


def _verify_with_topic(options: argparse.Namespace, pipeline: Pipeline, each: Table) -> Report:
    from ottla.pipelines.tables.read import snapshot
    from ottla.pipelines.tables.rebuild import rebuild as make
    from ottla.pipelines.tables.verify import verify_tables

    snapshot(each.target, pipeline.storage_options)  # it says so if there is no table
    _await_topics(pipeline, [each])
    local = replace(pipeline, engine="deltalake", storage_options=None)
    with tempfile.TemporaryDirectory(prefix="ottla-verify-") as folder:
        make(_session(options, pipeline), local, each, f"{folder}/expected")
        return verify_tables(f"{folder}/expected", each.target, pipeline.storage_options)


def _tell_report(name: str, against: str, report: Report, *, is_json: bool) -> None:
    if is_json:
        ranges = [asdict(found) for found in report.ranges]
        told: dict[str, Any] = {"table": name, "against": against, "equal": report.is_equal, "ranges": ranges}
        told["rows"] = {"source": report.source_rows, "table": report.table_rows}
        told["differences"] = [asdict(found) for found in report.differences]
        told["differences_count"] = report.differences_count
        print(json.dumps(told, default=str))
        return
    bad = sum(not found.is_equal for found in report.ranges)
    verdict = "equal" if report.is_equal else f"{counted(report.differences_count, 'row')} differ"
    print(
        f"{name}: {verdict}: {counted(report.source_rows, 'row')} in {against}, {report.table_rows:,} in the table; "
        f"{counted(len(report.ranges), 'range')} of keys compared, {bad} differ"
    )
    for difference in report.differences:
        print(f"  {difference}")
    if report.differences_count > len(report.differences):
        print(f"  and {report.differences_count - len(report.differences):,} more")


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "status": status,
    "rebuild": rebuild,
    "verify": verify,
}
