"""`ottla transactions`: list, describe and abort transactions, and find those that hang."""

from __future__ import annotations

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, seconds
from ottla.cli.errors import UsageError
from ottla.cli.parser import Parser

DESCRIPTION = "List, describe and abort transactions, of Ottla or Apache Kafka."
DEFAULT_HANGING_SECONDS = 900.0

EXAMPLES = """\
examples:
  ottla transactions list --state Ongoing
  ottla transactions describe payments-1
  ottla transactions find-hanging
  ottla transactions abort payments-1
"""

LIST_EXAMPLES = f"""\
examples:
  ottla transactions list
  ottla transactions list --state Ongoing --longer-than 600
  ottla transactions list --pattern 'payments-.*' --json | jq -r .transactional_id

{EXIT_CODES}
"""

DESCRIBE_EXAMPLES = f"""\
examples:
  ottla transactions describe payments-1
  ottla transactions describe payments-1 payments-2 --json | jq .partitions

{EXIT_CODES}
"""

HANGING_EXAMPLES = f"""\
examples:
  ottla transactions find-hanging
  ottla transactions find-hanging orders --longer-than 3600

A transaction hangs in a partition when it is open there and its coordinator
knows nothing of it. Readers of committed records wait for it for ever.

{EXIT_CODES}
"""

ABORT_EXAMPLES = f"""\
examples:
  ottla transactions abort payments-1
  ottla transactions abort --topic orders --partition 3 --start-offset 4711

By its id a transaction is aborted everywhere, and its producer has to begin
anew. In one partition only, that is for a transaction that hangs there, as
find-hanging shows it: any other would be torn.

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.verb == "abort":
        _check_abort(options.transactional_id, options.topic, options.partition, options.start_offset)
    from ottla.cli.transactions_run import VERBS

    return VERBS[options.verb](options)


def _check_abort(transactional_id: str | None, *place: object) -> None:
    given = [part is not None for part in place]
    if (transactional_id is None and not all(given)) or (transactional_id is not None and any(given)):
        raise UsageError(
            "give an ID, or all of --topic, --partition and --start-offset; see 'ottla transactions abort --help'"
        )


def _parser() -> Parser:
    parser = Parser(prog="ottla transactions", description=DESCRIPTION, epilog=EXAMPLES)
    verb = parser.verb_adder()

    listing = verb("list", "list transactional ids", LIST_EXAMPLES)
    listing.add_argument("--state", action="append", default=[], metavar="STATE", help="only this state; repeat it")
    listing.add_argument(
        "--producer-id", type=int, action="append", default=[], metavar="N", help="only this producer; repeat it"
    )
    listing.add_argument("--longer-than", type=seconds, metavar="SECONDS", help="only those that began before that")
    listing.add_argument("--pattern", metavar="REGEX", help="only ids that the whole expression fits")

    describe = verb("describe", "describe transactions: producers, times, partitions", DESCRIBE_EXAMPLES)
    describe.add_argument("ids", nargs="+", metavar="ID")

    hanging = verb("find-hanging", "find transactions that nobody will end", HANGING_EXAMPLES)
    hanging.add_argument("topics", nargs="*", metavar="TOPIC", help="all, if none is named")
    hanging.add_argument(
        "--longer-than",
        type=seconds,
        default=DEFAULT_HANGING_SECONDS,
        metavar="SECONDS",
        help=f"only those without a write for so long ({DEFAULT_HANGING_SECONDS:g})",
    )

    abort = verb("abort", "abort a transaction", ABORT_EXAMPLES)
    abort.add_argument("transactional_id", nargs="?", metavar="ID")
    abort.add_argument("--topic", metavar="TOPIC")
    abort.add_argument("--partition", type=int, metavar="N")
    abort.add_argument("--start-offset", type=int, metavar="N", help="where it begins in that partition")

    for added in (listing, describe, hanging, abort):
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        add_broker_options(added)
    return parser
