"""`ottla configs`: describe and alter the configuration of topics and brokers."""

from __future__ import annotations

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, setting
from ottla.cli.parser import Parser

DESCRIPTION = "Describe and alter the configuration of topics and brokers, of Ottla or Apache Kafka."

EXAMPLES = """\
examples:
  ottla configs describe --topic orders
  ottla configs alter --topic orders --set retention.ms=3600000
"""

DESCRIBE_EXAMPLES = f"""\
examples:
  ottla configs describe --topic orders
  ottla configs describe --topic orders --all
  ottla configs describe --broker 1 log.retention.ms num.partitions
  ottla configs describe --topic orders --all --json | jq -r '.name + "=" + .value'

Without names, and without --all, only what somebody has set is shown.

{EXIT_CODES}
"""

ALTER_EXAMPLES = f"""\
examples:
  ottla configs alter --topic orders --set retention.ms=3600000 --unset max.message.bytes
  ottla configs alter --topic orders --append cleanup.policy=compact
  ottla configs alter --broker 1 --set log.cleaner.threads=2 --dry-run

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.configs_run import alter, describe

    return describe(options) if options.verb == "describe" else alter(options)


def _parser() -> Parser:
    parser = Parser(prog="ottla configs", description=DESCRIPTION, epilog=EXAMPLES)
    verb = parser.verb_adder()
    describe = verb("describe", "show configurations", DESCRIBE_EXAMPLES)
    _add_resource(describe)
    describe.add_argument("names", nargs="*", metavar="NAME", help="only these")
    describe.add_argument("--all", action="store_true", help="the defaults too")
    describe.add_argument("--documentation", action="store_true", help="what each is for")
    alter = verb("alter", "change configurations", ALTER_EXAMPLES)
    _add_resource(alter)
    add_changes(alter)
    for added in (describe, alter):
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        add_broker_options(added)
    return parser


def _add_resource(parser: Parser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--topic", metavar="TOPIC")
    group.add_argument("--broker", metavar="ID", help='the id of a broker, or "default" for what holds for all')


def add_changes(parser: Parser) -> None:
    """The options that say how configurations change."""
    for name, summary in (
        ("--set", "give it this value"),
        ("--append", "add elements to a list"),
        ("--subtract", "take elements from a list"),
    ):
        parser.add_argument(name, type=setting, action="append", default=[], metavar="NAME=VALUE", help=summary)
    parser.add_argument("--unset", action="append", default=[], metavar="NAME", help="back to its default")
    parser.add_argument("--dry-run", action="store_true", help="only check whether it could be done")
