"""`ottla serve`: one broker, until it is told to stop."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import tempfile
from contextlib import ExitStack

from ottla import __version__
from ottla.cli.errors import UsageError
from ottla.cli.parser import Parser

DESCRIPTION = "Run a broker that Kafka's clients can use."
EXAMPLES = """\
examples:
  ottla serve                                   a broker on 127.0.0.1:9092, data in ./ottla-data
  ottla serve --listen 127.0.0.1:0 --data /tmp/x   any free port; the first line says which
  ottla serve --durability fsync                acknowledge only what is on the disk
  ottla serve --metrics 127.0.0.1:9100          also serve /metrics and /health
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    with ExitStack() as stack:
        folder = options.data
        if folder is None and options.ephemeral:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-"))
        return _serve(options, folder or "ottla-data")


def _parser() -> Parser:
    parser = Parser(prog="ottla serve", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("--data", metavar="DIR", help="where the data lies (default: ./ottla-data)")
    parser.add_argument("--ephemeral", action="store_true", help="keep the data in a folder that is removed at the end")
    parser.add_argument("--listen", metavar="HOST:PORT", default="127.0.0.1:9092", help="port 0: any that is free")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics and /health there")
    parser.add_argument("--config", metavar="FILE.toml", help="broker settings, by Kafka's names")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="one setting; may be repeated")
    parser.add_argument("--durability", choices=("page-cache", "fsync"), default="page-cache")
    parser.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="info")
    return parser


def _serve(options: argparse.Namespace, folder: str) -> int:
    from ottla.broker.broker import Broker
    from ottla.broker.loop import Loop
    from ottla.log.files import DiskFiles

    host, port = address_of(options.listen)
    loop = Loop()
    broker = Broker(loop, DiskFiles(), folder, syncs=options.durability == "fsync")
    try:
        broker.start(host, port)
        address = f"{broker.advertised_host}:{broker.advertised_port}"
        print(f"Ottla {__version__} serves on {address}, data in {folder}", flush=True)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: loop.post(loop.stop))
        loop.run()
        print("stopping", file=sys.stderr)
    finally:
        broker.stop()
        loop.close()
    return 0


def address_of(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise UsageError(f"{text!r} is no address; write HOST:PORT, as in 127.0.0.1:9092")
    return host.strip("[]"), int(port)
