"""`ottla groups`: list, describe and delete groups, and move their offsets."""

from __future__ import annotations

import argparse
import re
from datetime import timedelta

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, not_negative
from ottla.cli.errors import UsageError
from ottla.cli.parser import Parser
from ottla.cli.record_text import point_in_time

DESCRIPTION = "List, describe and delete groups, and move their offsets, of Ottla or Apache Kafka."
STATES = (
    "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling", "Stable", "Empty", "Dead", "NotReady",
)  # fmt: skip
TYPES = ("classic", "consumer", "share", "streams")

_ISO_DURATION = re.compile(
    r"P(?:(?P<weeks>\d+)W)?(?:(?P<days>\d+)D)?"
    r"(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_SHORT_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

EXAMPLES = """\
examples:
  ottla groups list
  ottla groups describe billing
  ottla groups reset-offsets billing --topic orders --to-datetime 2026-01-31T12:00:00Z
  ottla groups delete billing
"""

LIST_EXAMPLES = f"""\
examples:
  ottla groups list
  ottla groups list --state Stable --type consumer
  ottla groups list --json | jq -r .group

{EXIT_CODES}
"""

DESCRIBE_EXAMPLES = f"""\
examples:
  ottla groups describe billing
  ottla groups describe billing --members --state
  ottla groups describe --offsets --json | jq 'select(.lag > 1000).group'

The lag is counted in records that a consumer would really get: no markers,
nothing of aborted transactions, nothing that compaction has removed. To count
them, what the group has not read yet is fetched. That takes a while where it
is much; --fast shows the difference of offsets instead.

{EXIT_CODES}
"""

DELETE_EXAMPLES = f"""\
examples:
  ottla groups delete billing
  ottla groups delete billing reports --if-exists
  ottla groups delete billing --topic orders:0,1

A group that has members is not deleted: stop them first.

{EXIT_CODES}
"""

RESET_EXAMPLES = f"""\
examples:
  ottla groups reset-offsets billing --topic orders --to-earliest
  ottla groups reset-offsets billing --topic orders:0,1 --shift-by -100 --execute
  ottla groups reset-offsets billing --all-topics --by-duration 2h --execute
  ottla groups reset-offsets billing --all-topics --to-current --export > offsets.csv
  ottla groups reset-offsets billing --from-file offsets.csv --execute

Nothing is changed without --execute: what would be done is shown. The group
must have no members then. A TIME is milliseconds since 1970, ISO 8601, or so
long ago: 90s, 10m, 2h, 7d; a DURATION is one of these or PT1H30M. A file has
lines of topic,partition,offset, as --export and Kafka's own tool write them.

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.verb == "reset-offsets":
        _check_reset(options)
        from ottla.cli.groups_reset import reset_offsets

        return reset_offsets(options)
    if options.verb == "delete" and options.topic and len(options.names) > 1:
        raise UsageError("--topic goes with one GROUP; see 'ottla groups delete --help'")
    from ottla.cli.groups_run import VERBS

    return VERBS[options.verb](options)


def _check_reset(options: argparse.Namespace) -> None:
    if options.from_file is None and not (options.topic or options.all_topics):
        raise UsageError(
            "say which offsets: --topic, --all-topics or --from-file; see 'ottla groups reset-offsets --help'"
        )
    if options.from_file is not None and (options.topic or options.all_topics):
        raise UsageError("--from-file says which offsets, so neither --topic nor --all-topics goes with it")


def _parser() -> Parser:
    parser = Parser(prog="ottla groups", description=DESCRIPTION, epilog=EXAMPLES)
    verb = parser.verb_adder()

    listing = verb("list", "list groups", LIST_EXAMPLES)
    listing.add_argument(
        "--state", type=_state, action="append", default=[], metavar="STATE", help="only this state; repeat it"
    )
    listing.add_argument(
        "--type", type=_type, action="append", default=[], metavar="TYPE", help="only this type; repeat it"
    )

    describe = verb("describe", "describe groups: offsets, lag, members", DESCRIBE_EXAMPLES)
    describe.add_argument("names", nargs="*", metavar="GROUP", help="all, if none is named")
    shown = describe.add_argument_group("what to show (--offsets, if nothing is said)")
    shown.add_argument("--offsets", action="store_true", help="committed offsets and the lag, by partition")
    shown.add_argument("--members", action="store_true", help="the members, and what each reads")
    shown.add_argument("--state", action="store_true", help="coordinator, assignor and epochs")
    describe.add_argument("--fast", action="store_true", help="the lag as the difference of offsets, uncounted")

    delete = verb("delete", "delete groups, or offsets of one", DELETE_EXAMPLES)
    delete.add_argument("names", nargs="+", metavar="GROUP")
    delete.add_argument("--if-exists", action="store_true", help="no error for a group that is not there")
    _add_topics(delete, "only the offsets of this topic, or of some of its partitions; repeat it")

    reset = verb("reset-offsets", "move the offsets of a group", RESET_EXAMPLES)
    _add_reset(reset)

    for added in (listing, describe, delete, reset):
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        add_broker_options(added)
    return parser


def _add_reset(parser: Parser) -> None:
    # What argparse makes of so many choices does not fit on a screen.
    parser.usage = f"{parser.prog} GROUP [WHICH OFFSETS] WHERE TO [--execute | --export] [...]"
    parser.add_argument("group", metavar="GROUP")
    which = parser.add_argument_group("which offsets").add_mutually_exclusive_group()
    _add_topics(which, "of this topic, or of some of its partitions; repeat it")
    which.add_argument("--all-topics", action="store_true", help="all that the group has committed")
    where = parser.add_argument_group("where to").add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the first record there is")
    where.add_argument("--to-latest", action="store_true", help="what comes from now on")
    where.add_argument("--to-current", action="store_true", help="where they are: to check and to export them")
    where.add_argument("--to-offset", type=not_negative, metavar="N", help="this offset of each partition")
    where.add_argument("--to-datetime", type=point_in_time, metavar="TIME", help="the first record not older")
    where.add_argument("--by-duration", type=duration_ms, metavar="DURATION", help="the first record since then")
    where.add_argument("--shift-by", type=int, metavar="N", help="so many offsets ahead, or back if below 0")
    where.add_argument("--from-file", metavar="FILE", help="as the file says of each; - is standard input")
    mode = parser.add_argument_group("what to do").add_mutually_exclusive_group()
    mode.add_argument("--dry-run", action="store_true", help="show what would be done; so it is without any of these")
    mode.add_argument("--execute", action="store_true", help="do it")
    mode.add_argument("--export", action="store_true", help="write it as lines for --from-file")
    parser.add_argument("--create", action="store_true", help="a group that is not there comes to be")


def _add_topics(parser: argparse._ActionsContainer, summary: str) -> None:
    parser.add_argument(
        "--topic", type=topic_partitions, action="append", default=[], metavar="TOPIC[:N,N]", help=summary
    )


def topic_partitions(text: str) -> tuple[str, list[int] | None]:
    """A topic and the partitions that are named, None for all."""
    name, colon, numbers = text.partition(":")
    if not colon and name:
        return name, None
    parts = numbers.split(",")
    if not name or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not TOPIC or TOPIC:N,N as in orders:0,1")
    return name, sorted({int(part) for part in parts})


def duration_ms(text: str) -> int:
    """How many milliseconds a time takes: 90s, 10m, 2h, 7d, or ISO 8601."""
    if short := _SHORT_DURATION.fullmatch(text):
        length = timedelta(**{_UNITS[short[2]]: int(short[1])})
    else:
        iso = _ISO_DURATION.fullmatch(text)
        if iso is None or not any(iso.groups()):
            raise argparse.ArgumentTypeError(f"{text!r} is no duration: 90s, 10m, 2h, 7d, or PT1H30M")
        length = timedelta(**{unit: float(number) for unit, number in iso.groupdict().items() if number})
    return round(length / timedelta(milliseconds=1))


def _state(text: str) -> str:
    return _one_of(STATES, text)


def _type(text: str) -> str:
    return _one_of(TYPES, text)


def _one_of(names: tuple[str, ...], text: str) -> str:
    for name in names:
        if name.lower() == text.lower():
            return name
    raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(names)}")
