"""`ottla pipeline`: keep lake tables in step with topics of changes, on Spark."""

from __future__ import annotations

import argparse
from datetime import datetime

from ottla.cli.parser import Parser

DESCRIPTION = "Keep tables in step with topics of changes, on Spark; see docs/pipelines.md."

EXAMPLES = """\
examples:
  ottla pipeline run shop.toml                     until Ctrl-C
  ottla pipeline run shop.toml --once              all there is now, then end
  ottla pipeline run shop.toml --master spark://10.0.0.5:7077
  ottla pipeline status shop.toml
  ottla pipeline rebuild shop.toml --table customers
  ottla pipeline verify shop.toml

exit codes: 0 done, 1 it failed or a table differs, 2 wrong usage
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.pipeline_run import VERBS

    return VERBS[options.verb](options)


def _parser() -> Parser:
    parser = Parser(prog="ottla pipeline", description=DESCRIPTION, epilog=EXAMPLES)
    add_verb = parser.verb_adder()

    def verb(name: str, summary: str) -> Parser:
        added = add_verb(name, summary, EXAMPLES)
        added.add_argument("file", metavar="FILE", help="the pipeline: TOML, or Python with `pipeline = Pipeline(...)`")
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        added.add_argument("--table", metavar="NAME", help="only this one: its target, or the last part of it")
        return added

    running = verb("run", "apply changes as they come")
    running.add_argument("--once", action="store_true", help="end when all that is there now is in the tables")
    verb("status", "show how far the tables are")
    rebuilding = verb("rebuild", "make a table anew from its topic alone")
    rebuilding.add_argument(
        "--as-of", type=moment, metavar="TIME", help="only changes up to then, as in 2026-11-16T12:00"
    )
    rebuilding.add_argument("--to", metavar="PATH", help="where to put it; without it the table itself is replaced")
    verifying = verb("verify", "compare a table with its source")
    verifying.add_argument(
        "--against", metavar="FILE:TABLE", help="a table in SQLite; 'topic' to compare with its topic"
    )
    for added in (running, rebuilding, verifying):
        added.add_argument(
            "--master", metavar="URL", help="where Spark runs: spark://HOST:PORT, or local[N] (all cores)"
        )
    return parser


def moment(text: str) -> int:
    """A time as milliseconds since 1970; without a zone it is UTC."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 2026-11-16T12:00") from None
    if found.tzinfo is None:
        found = datetime.fromisoformat(text + "+00:00")
    return round(found.timestamp() * 1000)
