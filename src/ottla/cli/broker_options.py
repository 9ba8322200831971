"""What the verbs that speak to brokers have in common: which brokers, how long, and how their errors are told."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from ottla.cli.errors import FAILED, CommandFailed, UsageError
from ottla.cli.parser import Parser

if TYPE_CHECKING:
    from ottla.client import ClientError, ClientOptions

T = TypeVar("T")

DEFAULT_BOOTSTRAP = "localhost:9092"
DEFAULT_TIMEOUT_SECONDS = 30.0

EXIT_CODES = "exit codes: 0 done, 1 it failed or a broker refused, 2 wrong usage"


def add_broker_options(parser: Parser) -> None:
    group = parser.add_argument_group("brokers")
    group.add_argument(
        "--bootstrap",
        metavar="HOST:PORT",
        help=f"brokers to ask first, with commas between them (OTTLA_BOOTSTRAP, else {DEFAULT_BOOTSTRAP})",
    )
    group.add_argument(
        "--timeout",
        type=seconds,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help=f"how long to wait for an answer ({DEFAULT_TIMEOUT_SECONDS:g})",
    )


def bootstrap_of(options: argparse.Namespace) -> str:
    """What was given, else what the environment says. Checked here, before any work is done."""
    from ottla.client.network.address import parse_addresses

    bootstrap: str = options.bootstrap or os.environ.get("OTTLA_BOOTSTRAP") or DEFAULT_BOOTSTRAP
    try:
        parse_addresses(bootstrap)
    except ValueError as error:
        raise UsageError(f"--bootstrap: {error}; see 'ottla --help'") from None
    return bootstrap


def client_options(options: argparse.Namespace) -> ClientOptions:
    from ottla.client import ClientOptions

    timeout_ms = round(options.timeout * 1000)
    return ClientOptions(
        client_id="ottla-cli",
        connect_timeout_ms=timeout_ms,
        request_timeout_ms=timeout_ms,
        retry_timeout_ms=timeout_ms,
    )


@contextmanager
def errors_as_sentences() -> Iterator[None]:
    """What a client raises, as the sentence that ends the command."""
    from ottla.client import ClientError

    try:
        yield
    except ClientError as error:
        raise CommandFailed(sentence_of(error)) from None


def settle(ask: Callable[[], list[T]], forgiven: Iterable[int] = ()) -> tuple[list[T], int]:
    """What was done of several things, and the exit code. Errors are told one a line, but those that are forgiven."""
    from ottla.client import PartlyFailed, ServerError

    try:
        return ask(), 0
    except PartlyFailed as failed:
        errors, done = list(failed.errors), list(failed.done)
    except ServerError as failed:
        errors, done = [failed], []
    told = [error for error in errors if error.code not in forgiven]
    for error in told:
        print(f"ottla: {sentence_of(error)}", file=sys.stderr)
    return done, FAILED if told else 0


def sentence_of(error: ClientError) -> str:
    """What happened and, where there is advice, what to do about it."""
    if not error.advice:
        return str(error)
    return f"{error}: {error.advice[0].lower()}{error.advice[1:].rstrip('.')}"


def seconds(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return number


def setting(text: str) -> tuple[str, str]:
    """NAME=VALUE; the value may be empty."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in retention.ms=3600000")
    return name, value


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)
