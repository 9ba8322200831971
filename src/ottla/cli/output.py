"""Standard output: made ready for whatever comes, and its own troubles told as such."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from ottla.cli.errors import CommandFailed


def prepare() -> None:
    """CommandFailed if there is no standard output; what is opened later must not take its place."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A character that the terminal's encoding lacks is shown by its number, and is no error.
            stream.reconfigure(errors="backslashreplace")
    if sys.stdout is None:
        raise CommandFailed("standard output is closed; send it to a file, or to /dev/null")


def say(line: str) -> None:
    """Print a line at once."""
    with _told():
        print(line, flush=True)


def flush() -> None:
    with _told():
        sys.stdout.flush()


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """The disk of the data may be full, too: say which it is."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard()
        raise CommandFailed(f"standard output: {(error.strerror or str(error)).lower()}") from None


def discard() -> None:
    """What is still buffered must not complain at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
