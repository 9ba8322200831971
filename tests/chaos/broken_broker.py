"""A broker with a mistake that was made on purpose: `python -m tests.chaos.broken_broker MISTAKE serve ...`."""

from __future__ import annotations

import sys
from collections.abc import Callable

from ottla.cli.main import main
from tests.sim import mistakes

MISTAKES: dict[str, Callable[[], mistakes.Planted]] = {
    "commit-alone": mistakes.commit_alone,
    "elect-anybody": mistakes.elect_anybody,
    "write-twice": mistakes.write_twice,
    "show-undecided": mistakes.show_undecided,
}


if __name__ == "__main__":
    with MISTAKES[sys.argv[1]]():
        sys.exit(main(sys.argv[2:]))
