"""The argument parser of all verbs: one sentence for a mistake, and examples that keep their lines in the help."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from ottla.cli.errors import UsageError


class Parser(argparse.ArgumentParser):
    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see '{self.prog} --help'")
