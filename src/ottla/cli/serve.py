"""`ottla serve`: one broker, until it is told to stop."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.cli.errors import CommandFailed, UsageError
from ottla.cli.output import say
from ottla.cli.parser import Parser

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

AWAKE_SECONDS = 100e-6  # that a wait may take before the broker goes to sleep
DEFAULT_DATA = "ottla-data"
DATA_HELP = f"where the data lies (default: the setting log.dirs, else ./{DEFAULT_DATA})"
DEFAULT_LISTEN = "127.0.0.1:9092"
LISTEN_HELP = f"port 0: any that is free (default: the setting listeners, else {DEFAULT_LISTEN})"
DESCRIPTION = "Run a broker that Kafka's clients can use."
EXAMPLES = """\
examples:
  ottla serve                                   on 127.0.0.1:9092, data in ./ottla-data
  ottla serve --listen 127.0.0.1:0 --ephemeral  on a free port, nothing kept at the end
  ottla serve --durability fsync                acknowledge only what is on the disk
  ottla serve --metrics 127.0.0.1:9100          also serve /metrics and /health
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    _log_to_stderr(options.log_level, options.log_format)
    settings = _settings(options)
    with ExitStack() as stack:
        if options.ephemeral and options.data is None:
            import tempfile

            settings["log.dirs"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-"))
        return _serve(options, settings)


def _log_to_stderr(level: str, form: str) -> None:
    from ottla.broker.events import FORMATTERS

    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(FORMATTERS[form]())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def _parser() -> Parser:
    parser = Parser(prog="ottla serve", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--data", metavar="DIR", help=DATA_HELP)
    parser.add_argument("--ephemeral", action="store_true", help="keep the data in a folder that is removed at the end")
    parser.add_argument("--listen", metavar="HOST:PORT", help=LISTEN_HELP)
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics and /health there")
    parser.add_argument("--config", metavar="FILE.toml", help="broker settings, by Kafka's names")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="one setting; may be repeated")
    parser.add_argument("--durability", choices=("page-cache", "fsync"), default="page-cache")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="of the log on standard error")
    return parser


def _serve(options: argparse.Namespace, given: dict[str, str]) -> int:
    from ottla.broker.broker import Broker
    from ottla.broker.collector import calm_collector
    from ottla.broker.config_layers import BrokerSettings
    from ottla.broker.loop import Loop
    from ottla.broker.system import LinuxSystem
    from ottla.config import ConfigError
    from ottla.log.files import DiskFiles

    try:
        settings = BrokerSettings(given)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    folder = _only_folder(settings.config.log_dirs or settings.config.log_dir)
    _allow_many_files()
    loop = Loop(LinuxSystem(awake_seconds=AWAKE_SECONDS))
    broker = Broker(loop, DiskFiles(), folder, settings, syncs=options.durability == "fsync")
    try:
        _start(broker, folder)
        say(f"Ottla {__version__} serves on {broker.address}, data in {folder}")
        if options.metrics:
            pages = address_of(options.metrics)
            say(f"metrics on http://{pages[0]}:{broker.serve_pages(*pages)}/metrics")
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: loop.post(loop.stop))
        calm_collector()
        loop.run()
    except BaseException:
        with contextlib.suppress(CommandFailed):  # what failed first is told
            _stop(broker, folder)
        raise
    else:
        _stop(broker, folder)
    finally:
        loop.close()
    return 0


def _stop(broker: Broker, folder: str) -> None:
    from ottla.controller.store import StoreError
    from ottla.log.errors import LogError

    try:
        broker.stop()
    except (OSError, LogError, StoreError) as error:
        raise CommandFailed(
            f"{folder}: stopped, but not everything could be written ({error}); nothing that was on the disk is lost, "
            "and the next start checks the rest"
        ) from None


def _allow_many_files() -> None:
    """Each connection is an open file, and each partition that is written to: as many as the system lets us have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _start(broker: Broker, folder: str) -> None:
    from ottla.config import ConfigError
    from ottla.controller.store import StoreError

    try:
        broker.start()
    except ConfigError as error:
        raise UsageError(str(error)) from None
    except StoreError as error:
        raise CommandFailed(f"the store of the cluster cannot be used: {error}") from None
    except BlockingIOError:
        raise CommandFailed(
            f"{folder}: another broker uses this data; stop it, or give --data another folder"
        ) from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            listeners = ", ".join(broker.settings.config.listeners)
            sentence = f"{listeners} is in use; give --listen another port, or port 0 for a free one"
            raise CommandFailed(sentence) from None
        if error.filename is None:
            raise
        raise CommandFailed(_unusable(folder, error)) from None


def _unusable(folder: str, error: OSError) -> str:
    """Why the data folder cannot be used, in words that say what to do."""
    from pathlib import Path  # which a broker that starts does without

    if Path(folder).exists() and not Path(folder).is_dir():
        return f"{folder}: this is a file; give --data a folder, which is made if it is missing"
    reason = (error.strerror or str(error)).lower()
    where = f" ({error.filename})" if error.filename != folder else ""
    return f"{folder}: the data cannot be opened: {reason}{where}"


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """The broker's settings: those of the file, and over them those of the command line."""
    from ottla.broker.listeners import plaintext

    settings: dict[str, str] = {}
    if options.config:
        settings = _settings_in(options.config)
    for text in options.set:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--set {text}: write KEY=VALUE, as in --set num.partitions=3")
        settings[key] = value
    if options.listen or "listeners" not in settings:
        settings["listeners"] = plaintext(*address_of(options.listen or DEFAULT_LISTEN))
    if options.data is not None:
        settings["log.dirs"] = options.data
    elif "log.dirs" not in settings and "log.dir" not in settings:
        settings["log.dirs"] = DEFAULT_DATA
    return settings


def _settings_in(path: str) -> dict[str, str]:
    import tomllib

    with open(path, "rb") as file:
        try:
            return dict(_flattened(tomllib.load(file)))
        except tomllib.TOMLDecodeError as error:
            raise CommandFailed(f"{path}: {error}") from None


def _only_folder(folders: tuple[str, ...]) -> str:
    if len(folders) != 1:
        raise UsageError(f"log.dirs: Ottla keeps its data in one folder, not in {len(folders)}")
    return folders[0]


def _flattened(table: dict[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """TOML reads a dotted key as tables in tables; Kafka's names are the path through them."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flattened(value, f"{prefix}{key}.")
        elif isinstance(value, bool):
            yield prefix + key, str(value).lower()
        elif isinstance(value, list):
            yield prefix + key, ",".join(map(str, value))
        else:
            yield prefix + key, str(value)


def address_of(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address; write HOST:PORT, as in 127.0.0.1:9092")
    return host.strip("[]"), int(port)
