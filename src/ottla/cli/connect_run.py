"""What the verbs of `ottla connect` do."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.broker_options import sentence_of
from ottla.cli.errors import FAILED, CommandFailed
from ottla.cli.serve import address_of
from ottla.cli.signals import call_on_stop_signals
from ottla.cli.table import counted, table

if TYPE_CHECKING:
    from ottla.connect.configuration import Configuration, ConnectorConfiguration
    from ottla.connect.pages import RunnerPages
    from ottla.connect.state import TaskStatus

STALE_MS = 15_000
"""A task that nobody has told of for so long has no runner."""
GONE_MS = 3_600_000
"""A sink's task that nobody has told of for so long was of a runner that is gone."""


@contextmanager
def _errors_as_sentences() -> Iterator[None]:
    from ottla.client import ClientError
    from ottla.connect.configuration import ConfigurationRefused
    from ottla.connect.interface import ConnectorRefused

    try:
        yield
    except ClientError as error:
        raise CommandFailed(sentence_of(error)) from None
    except (ConfigurationRefused, ConnectorRefused) as error:
        raise CommandFailed(str(error)) from None


def _load(options: argparse.Namespace) -> tuple[Configuration, list[ConnectorConfiguration]]:
    configuration = _loader(options)(Path(options.file))
    return configuration, configuration.chosen(getattr(options, "connector", None))


def _loader(options: argparse.Namespace) -> Callable[[Path], Configuration]:
    """`ottla mirror` has the same verbs, for files of another form."""
    if options.kind == "mirror":
        from ottla.connect.mirror.configuration import load_mirror

        return load_mirror
    from ottla.connect.configuration import load

    return load


def run(options: argparse.Namespace) -> int:
    from ottla.connect.pages import RunnerPages
    from ottla.connect.runner import Runner

    pages, teller = RunnerPages(), _Teller(is_json=options.json)

    def tell(connector: str, task: str, status: TaskStatus) -> None:
        teller.tell(connector, task, status)
        pages.tell(connector, task, status)

    address = address_of(options.metrics) if options.metrics else None
    with _errors_as_sentences():
        configuration, chosen = _load(options)
        for connector in chosen:
            connector.make()
        runner = Runner(configuration, chosen, tell=tell)
        call_on_stop_signals(runner.stopping.set)
        if address is not None:
            url = f"http://{address[0]}:{_served(pages, address)}/metrics"
            print(json.dumps({"metrics": url}) if options.json else f"metrics on {url}", flush=True)
        if not options.json:
            names = ", ".join(connector.name for connector in chosen)
            print(f"runner {runner.name}: {names}; Ctrl-C ends it", flush=True)
        runner.start()
        runner.stopping.wait()
        runner.stop()
        pages.close()
    return 0


def _served(pages: RunnerPages, address: tuple[str, int]) -> int:
    try:
        return pages.serve(*address)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandFailed(f"--metrics {address[0]}:{address[1]}: {reason}") from None


class _Teller:
    """Says what changed, and every now and then how it goes."""

    def __init__(self, *, is_json: bool) -> None:
        self._is_json = is_json
        self._told: dict[tuple[str, str], tuple[str, int, str | None]] = {}

    def tell(self, connector: str, task: str, status: TaskStatus) -> None:
        if self._is_json:
            _print_whole(json.dumps({"connector": connector, "task": task, **asdict(status)}))
            return
        seen = (status.state, status.records, status.error)
        if self._told.get((connector, task)) == seen:
            return
        self._told[connector, task] = seen
        clock = datetime.fromtimestamp(status.time_ms / 1000, UTC).strftime("%H:%M:%S")
        rate = f"  {status.records_per_second:,.0f}/s" if status.records else ""
        error = f"  {status.error}" if status.error and status.state in ("waiting", "failed") else ""
        _print_whole(f"{clock}  {connector}/{task}  {status.state}  {counted(status.records, 'record')}{rate}{error}")


def _print_whole(line: str) -> None:
    """Tasks tell from threads of their own, and `print` writes the end of a line for itself."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def check(options: argparse.Namespace) -> int:
    """Each connector by itself; a wrong file is a sentence before any of it."""
    from ottla.connect.check import check_connector

    code = 0
    with _errors_as_sentences():
        configuration, chosen = _load(options)
        for connector in chosen:
            for finding in check_connector(configuration, connector):
                text = configuration.secrets.hide(finding.text)
                if options.json:
                    print(json.dumps({"connector": connector.name, "problem": finding.is_problem, "text": text}))
                else:
                    print(f"{connector.name}: {'PROBLEM: ' if finding.is_problem else ''}{text}")
                code = FAILED if finding.is_problem else code
    return code


def status(options: argparse.Namespace) -> int:
    with _errors_as_sentences():
        configuration, chosen = _load(options)
        from ottla.connect.state import load_states, now_ms

        states, _ = load_states(configuration.bootstrap, configuration.client_options)
        rows, errors = [], []
        for connector in chosen:
            state = states.of(connector.name)
            lag_records = _lag_records(configuration, connector)
            known: list[tuple[str, TaskStatus | None]] = [*sorted(state.tasks.items())] or [("-", None)]
            for task, told in known:
                is_stale = told is not None and now_ms() - told.time_ms > STALE_MS
                if told is not None and not connector.is_source and now_ms() - told.time_ms > GONE_MS:
                    continue
                shown = _shown_state(told, is_stale=is_stale, is_paused=state.wish.is_paused)
                if options.json:
                    _tell_status_json(connector, task, told, shown, lag_records)
                    continue
                rows.append(_status_row(connector, task, told, shown, lag_records))
                if told is not None and told.error:
                    when = "" if told.error_at_ms is None else f", {_ago(now_ms() - told.error_at_ms)}"
                    errors.append(f"{connector.name}/{task}: the last error{when}: {told.error}")
        if not options.json:
            heading = ("CONNECTOR", "TASK", "STATE", "RUNNER", "RECORDS", "RATE", "LAG", "DEAD LETTERS", "DOING")
            print("\n".join(table(heading, rows)))
            for error in errors:
                print(error)
    return 0


def _shown_state(told: TaskStatus | None, *, is_stale: bool, is_paused: bool) -> str:
    if told is None:
        return "paused" if is_paused else "never ran"
    if is_stale and told.state not in ("failed",):
        return "paused, no runner" if is_paused else "no runner"
    return told.state


def _tell_status_json(
    connector: ConnectorConfiguration, task: str, told: TaskStatus | None, shown: str, lag_records: int | None
) -> None:
    document: dict[str, Any] = {"connector": connector.name, "task": task, "lag_records": lag_records}
    document |= {} if told is None else asdict(told)
    print(json.dumps(document | {"state": shown}))


def _status_row(
    connector: ConnectorConfiguration, task: str, told: TaskStatus | None, shown: str, lag_records: int | None
) -> tuple[object, ...]:
    if told is None:
        return (connector.name, task, shown, None, None, None, None, None, None)
    lag = None if lag_records is None else counted(lag_records, "record")
    if told.lag_seconds is not None:
        lag = f"{told.lag_seconds:.1f} s"
    doing = told.doing or ", ".join(told.partitions) or None
    rate = f"{told.records_per_second:,.0f}/s"
    return (connector.name, task, shown, told.runner, told.records, rate, lag, told.dead_letters, doing)


def _lag_records(configuration: Configuration, connector: ConnectorConfiguration) -> int | None:
    """Of a sink: what its group has not read."""
    from ottla.client import Admin, ClientError
    from ottla.connect.positions import group_of

    if connector.is_source:
        return None
    try:
        with Admin(configuration.bootstrap, configuration.client_options) as admin:
            lags = admin.group_lags(group_of(connector.name))
    except ClientError:
        return None
    return sum(lag.records for lag in lags.values() if lag.records is not None)


def _ago(elapsed_ms: int) -> str:
    seconds = max(elapsed_ms // 1000, 0)
    if seconds < 120:
        return f"{seconds} s ago"
    return f"{seconds // 60} min ago" if seconds < 7200 else f"{seconds // 3600} h ago"


def _wish(options: argparse.Namespace, change: Callable[[Any], Any], done: str) -> int:
    with _errors_as_sentences():
        configuration, chosen = _load(options)
        from ottla.connect.state import load_states, make_wish

        states, _ = load_states(configuration.bootstrap, configuration.client_options)
        for connector in chosen:
            wish = change(states.of(connector.name).wish)
            make_wish(configuration.bootstrap, configuration.client_options, connector.name, wish)
            told = json.dumps({"connector": connector.name, "done": done})
            print(told if options.json else f"{connector.name}: {done}")
    return 0


def pause(options: argparse.Namespace) -> int:
    return _wish(options, lambda wish: wish._replace(is_paused=True), "is to pause")


def resume(options: argparse.Namespace) -> int:
    return _wish(options, lambda wish: wish._replace(is_paused=False), "is to go on")


def restart(options: argparse.Namespace) -> int:
    return _wish(options, lambda wish: wish._replace(restarts=wish.restarts + 1), "is to begin anew")


def reset(options: argparse.Namespace) -> int:
    with _errors_as_sentences():
        configuration, chosen = _load(options)
        from ottla.client import ClientError
        from ottla.connect.interface import ConnectorRefused
        from ottla.connect.reset import reset_connector

        if not options.yes and not _is_sure(chosen):
            raise CommandFailed("nothing was changed; say --yes to do it without being asked")
        for connector in chosen:
            try:
                said = reset_connector(configuration, connector)
            except (ClientError, ConnectorRefused):
                raise
            except Exception as error:  # a connector may raise anything
                reason = configuration.secrets.hide((str(error) or type(error).__name__).splitlines()[0])
                raise CommandFailed(f"{connector.name}: {reason}") from None
            told = json.dumps({"connector": connector.name, "done": said})
            print(told if options.json else f"{connector.name}: {said}")
    return 0


def _is_sure(chosen: list[ConnectorConfiguration]) -> bool:
    if not sys.stdin.isatty():
        return False
    names = ", ".join(connector.name for connector in chosen)
    answer = input(f"{names}: forget how far it is, and begin at the beginning? [y/N] ")
    return answer.strip().lower() in ("y", "yes")


def forget(options: argparse.Namespace) -> int:
    """Of a mirror: one topic."""
    with _errors_as_sentences():
        configuration, [mirror] = _load(options)
        from ottla.connect.mirror.forget import forget_topic

        said = forget_topic(configuration, mirror, options.topic)
        print(json.dumps({"connector": mirror.name, "done": said}) if options.json else f"{mirror.name}: {said}")
    return 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "run": run,
    "check": check,
    "status": status,
    "pause": pause,
    "resume": resume,
    "restart": restart,
    "reset": reset,
    "forget": forget,
}
