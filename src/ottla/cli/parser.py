"""The argument parser of all verbs: one sentence for a mistake, and examples that keep their lines in the help."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from ottla.cli.errors import UsageError

USUAL_COLUMNS = 80


class Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", Help)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see '{self.prog} --help'")

    def verb_adder(self) -> Callable[[str, str, str], Parser]:
        """What adds a verb, by its name, what it does, and its examples."""
        verbs = self.add_subparsers(metavar="VERB", title="verbs", dest="verb", required=True)

        def verb(name: str, summary: str, examples: str) -> Parser:
            added: Parser = verbs.add_parser(
                name, help=summary, description=f"{summary.capitalize()}.", epilog=examples
            )
            return added

        return verb


class Help(argparse.RawDescriptionHelpFormatter):
    """As wide as the terminal. argparse would ask `shutil` for that, with all it imports, for each argument."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=columns() - 2)


def columns() -> int:
    """What `shutil.get_terminal_size` says."""
    try:
        given = int(os.environ.get("COLUMNS", ""))
    except ValueError:
        given = 0
    if given > 0:
        return given
    try:
        assert sys.__stdout__ is not None
        return os.get_terminal_size(sys.__stdout__.fileno()).columns or USUAL_COLUMNS
    except (AssertionError, OSError, ValueError):  # there is none, it is no terminal, or it is closed
        return USUAL_COLUMNS
