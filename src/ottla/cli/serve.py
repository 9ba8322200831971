"""`ottla serve`: one broker, until it is told to stop."""

from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

from ottla import __version__
from ottla.cli.broker_options import not_negative
from ottla.cli.errors import CommandFailed, UsageError
from ottla.cli.output import say
from ottla.cli.parser import Parser

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.config.layers import BrokerSettings
    from ottla.broker.stores import OpenStore

BUSY_POLL_SECONDS = 100e-6  # that a wait may take before the broker goes to sleep
DEFAULT_DATA = "ottla-data"
DATA_HELP = f"where the data lies (default: the setting log.dirs, else ./{DEFAULT_DATA})"
DEFAULT_LISTEN = "127.0.0.1:9092"
LISTEN_HELP = f"port 0: any that is free (default: the setting listeners, else {DEFAULT_LISTEN})"
STORE_HELP = "of a cluster: local:PATH (one machine) or zookeeper://HOST:PORT,HOST:PORT/CHROOT; none: a broker alone"
DESCRIPTION = "Run a broker that Kafka's clients can use."
EXAMPLES = """\
examples:
  ottla serve                                   on 127.0.0.1:9092, data in ./ottla-data
  ottla serve --listen 127.0.0.1:0 --ephemeral  on a free port, nothing kept at the end
  ottla serve --durability fsync                acknowledge only what is on the disk
  ottla serve --metrics 127.0.0.1:9100          also serve /metrics and /health
  ottla serve --store zookeeper://zk1:2181/ottla --id 2 --listen 10.0.0.2:9092
                                                one of several brokers
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
    parser.add_argument("--store", metavar="STORE", help=STORE_HELP)
    parser.add_argument(
        "--id", type=not_negative, metavar="N", help="the number of this broker (default: the setting node.id, else 1)"
    )
    parser.add_argument("--rack", metavar="NAME", help="where the broker stands: replicas are spread over racks")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics and /health there")
    parser.add_argument("--config", metavar="FILE.toml", help="broker settings, by Kafka's names")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="one setting; may be repeated")
    parser.add_argument("--durability", choices=("page-cache", "fsync"), default="page-cache")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="of the log on standard error")
    return parser


def _serve(options: argparse.Namespace, given: dict[str, str]) -> int:
    from ottla.broker.broker import Broker
    from ottla.broker.config.layers import BrokerSettings
    from ottla.broker.load_ahead import LoadAhead
    from ottla.broker.loop.collector import Collector
    from ottla.broker.loop.loop import Loop
    from ottla.broker.loop.system import LinuxSystem
    from ottla.config import ConfigError
    from ottla.log.files import DiskFiles

    try:
        settings = BrokerSettings(given)
    except ConfigError as error:
        raise UsageError(str(error)) from None
    folder, *more_folders = _folders(settings.config.log_dirs or settings.config.log_dir)
    _allow_many_files()
    system = LinuxSystem(busy_poll_seconds=BUSY_POLL_SECONDS)
    loop = Loop(system)
    broker = Broker(
        loop,
        DiskFiles(),
        folder,
        settings,
        syncs=options.durability == "fsync",
        open_store=_store(options, settings),
        more_folders=more_folders,
    )
    try:
        _start(broker, folder)
        say(f"Ottla {__version__} serves on {broker.address}, data in {folder}")
        if options.metrics:
            pages = address_of(options.metrics)
            say(f"metrics on http://{pages[0]}:{broker.pages.serve(*pages)}/metrics")
        system.wake_on_signals()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: loop.post(loop.stop))
        loop.set_collector(Collector())
        ahead = LoadAhead(loop)
        loop.run()
        ahead.stop()
    except BaseException:
        with contextlib.suppress(CommandFailed):  # what failed first is told
            _stop(broker, folder)
        raise
    else:
        if broker.halted is not None:
            broker.abandon()
            raise CommandFailed(f"the broker has stopped: {broker.halted}")
        _stop(broker, folder)
    finally:
        loop.close()
    return 0


def _store(options: argparse.Namespace, settings: BrokerSettings) -> OpenStore | None:
    if options.store is None:
        return None
    from ottla.broker.stores import shared_store
    from ottla.config import ConfigError

    try:
        return shared_store(options.store, session_seconds=settings.config.broker_session_timeout_ms / 1000)
    except ConfigError as error:
        raise UsageError(f"--store {error}") from None


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
    from ottla.log.errors import FULL

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
        if error.filename is None and error.errno not in FULL:
            raise
        raise CommandFailed(_unusable(folder, error)) from None


def _unusable(folder: str, error: OSError) -> str:
    """Why the data folder cannot be used, in words that say what to do."""
    from pathlib import Path  # which a broker that starts does without

    if Path(folder).exists() and not Path(folder).is_dir():
        return f"{folder}: this is a file; give --data a folder, which is made if it is missing"
    reason = (error.strerror or str(error)).lower()
    where = f" ({error.filename})" if error.filename not in (None, folder) else ""
    return f"{folder}: the data cannot be opened: {reason}{where}"


def _settings(options: argparse.Namespace) -> dict[str, str]:
    """The broker's settings: those of the file, and over them those of the command line."""
    from ottla.broker.network.listeners import plaintext

    settings: dict[str, str] = {}
    if options.config:
        settings = _settings_in(options.config)
    for text in options.set:
        key, separator, value = text.partition("=")
        if not separator:
            raise UsageError(f"--set {text}: write KEY=VALUE, as in --set num.partitions=3")
        settings[key] = value
    own: dict[str, tuple[str, str]] = {}  # what has an option of its own: which, and the value
    if options.listen is not None:
        own["listeners"] = "--listen", plaintext(*address_of(options.listen))
    if options.id is not None:
        own["node.id"] = "--id", str(options.id)
    if options.rack is not None:
        own["broker.rack"] = "--rack", options.rack
    if options.data is not None:
        if not options.data.strip():
            raise UsageError("--data: no folder is named")
        own["log.dirs"] = "--data", options.data
    _tell_overruled(options.set, own)
    settings |= {key: value for key, (_, value) in own.items()}
    settings.setdefault("listeners", plaintext(*address_of(DEFAULT_LISTEN)))
    if "log.dir" not in settings:
        settings.setdefault("log.dirs", DEFAULT_DATA)
    return settings


def _tell_overruled(texts: list[str], own: dict[str, tuple[str, str]]) -> None:
    """Who gives a setting twice on one command line learns which one holds."""
    from ottla.broker.events import Events

    for text in texts:
        key, _, value = text.partition("=")
        if key in own and own[key][1] != value:
            events = Events("ottla.broker")
            events.warning("a setting is given twice", setting=key, holds=own[key][0], ignored=f"--set {text}")


def _settings_in(path: str) -> dict[str, str]:
    import tomllib

    with open(path, "rb") as file:
        try:
            return dict(_flattened(tomllib.load(file)))
        except tomllib.TOMLDecodeError as error:
            raise CommandFailed(f"{path}: {error}") from None


def _folders(folders: tuple[str, ...]) -> tuple[str, ...]:
    """The first one also has what is the broker's own."""
    if not folders:
        raise UsageError("log.dirs: no folder is named")
    if len({os.path.abspath(folder) for folder in folders}) < len(folders):  # noqa: PTH100
        raise UsageError("log.dirs: a folder is named twice")
    return folders


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
