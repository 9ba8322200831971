"""`ottla consume`: read records of a topic to standard output, one a line."""

from __future__ import annotations

import argparse

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, not_negative
from ottla.cli.log import positive
from ottla.cli.parser import Parser
from ottla.cli.record_text import FORMATS, point_in_time, separator

FIELDS = ("topic", "partition", "offset", "timestamp", "time", "headers", "key", "value")

DESCRIPTION = """\
Read records of a topic to standard output, one a line: the value as it is, or
with --key-separator key and value, or with --show the fields that are named,
with tabs between them. In the format json a line is an object with everything.

Reading begins at the end, with what comes from now on, unless a start is given.
Without an end it goes on until Ctrl-C. No group is joined and no offset is
kept: nobody else notices."""

EXAMPLES = rf"""examples:
  ottla consume orders --from-beginning
  ottla consume orders --from-beginning --to-end --format json | jq .value
  ottla consume orders --partition 3 --offset 1000 --count 10 --show offset,key,value
  ottla consume orders --from-time 2026-01-31T12:00:00Z --to-time 2026-01-31T13:00:00Z
  ottla consume orders --from-time 10m --key-separator '\t'

A TIME is milliseconds since 1970, ISO 8601, or so long ago: 90s, 10m, 2h, 7d.

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.consume_run import consume

    return consume(options)


def fields(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in FIELDS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(FIELDS)}")
    return names


def _parser() -> Parser:
    parser = Parser(prog="ottla consume", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--partition", type=not_negative, action="append", metavar="N", help="only this one; repeat it for several"
    )
    parser.add_argument(
        "--in-order",
        action="store_true",
        help="of a topic that has grown in order, what was written before a partition was added comes first",
    )
    starts = parser.add_argument_group("where to start").add_mutually_exclusive_group()
    starts.add_argument("--from-beginning", action="store_true", help="at the first record there is")
    starts.add_argument("--offset", type=not_negative, metavar="N", help="at this offset of each partition")
    starts.add_argument("--from-time", type=point_in_time, metavar="TIME", help="at the first record that is not older")
    group = parser.add_argument_group("where to end")
    ends = group.add_mutually_exclusive_group()
    ends.add_argument("--to-end", action="store_true", help="at the end as it is when reading begins")
    ends.add_argument("--to-offset", type=not_negative, metavar="N", help="before this offset of each partition")
    ends.add_argument("--to-time", type=point_in_time, metavar="TIME", help="before the first record that is not older")
    group.add_argument("--count", type=positive, metavar="N", help="after so many records")
    shown = parser.add_argument_group("what to show")
    shown.add_argument("--format", choices=FORMATS, default="text", help="of lines, and of the bytes in them (text)")
    shown.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    columns = shown.add_mutually_exclusive_group()
    columns.add_argument("--key-separator", type=separator, metavar="TEXT", help="show keys too, with this behind them")
    columns.add_argument("--show", type=fields, metavar="FIELDS", help=f"some of {','.join(FIELDS)}")
    shown.add_argument("--null", default="null", metavar="TEXT", help="shown in place of a null key or value (null)")
    shown.add_argument("--uncommitted", action="store_true", help="of open and aborted transactions too")
    add_broker_options(parser)
    return parser
