"""`ottla topics`: create, list, describe, alter, delete and expand topics."""

from __future__ import annotations

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, setting
from ottla.cli.configs import add_changes
from ottla.cli.log import positive
from ottla.cli.parser import Parser

DESCRIPTION = "Create, list, describe, alter, delete and expand topics, of Ottla or Apache Kafka."

EXAMPLES = """\
examples:
  ottla topics create orders --partitions 6
  ottla topics list
  ottla topics describe orders
  ottla topics expand orders --partitions 12
"""

CREATE_EXAMPLES = f"""\
examples:
  ottla topics create orders
  ottla topics create orders invoices --partitions 6 --replication-factor 3
  ottla topics create settings --config cleanup.policy=compact --if-not-exists

{EXIT_CODES}
"""

LIST_EXAMPLES = f"""\
examples:
  ottla topics list
  ottla topics list --internal --json | jq -r .name

{EXIT_CODES}
"""

DESCRIBE_EXAMPLES = f"""\
examples:
  ottla topics describe
  ottla topics describe orders --offsets
  ottla topics describe --json | jq 'select(.partitions[].leader == -1).name'

{EXIT_CODES}
"""

ALTER_EXAMPLES = f"""\
examples:
  ottla topics alter orders --set retention.ms=3600000
  ottla topics alter orders --unset retention.ms

{EXIT_CODES}
"""

DELETE_EXAMPLES = f"""\
examples:
  ottla topics delete orders
  ottla topics delete orders invoices --if-exists

{EXIT_CODES}
"""

EXPAND_EXAMPLES = f"""\
examples:
  ottla topics expand orders --partitions 12

A key may belong to another partition afterwards: what was written before
stays where it is.

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.topics_run import VERBS

    return VERBS[options.verb](options)


def _parser() -> Parser:
    parser = Parser(prog="ottla topics", description=DESCRIPTION, epilog=EXAMPLES)
    verbs = parser.add_subparsers(metavar="VERB", title="verbs", dest="verb", required=True)

    def verb(name: str, summary: str, examples: str) -> Parser:
        added: Parser = verbs.add_parser(name, help=summary, description=f"{summary.capitalize()}.", epilog=examples)
        return added

    create = verb("create", "create topics", CREATE_EXAMPLES)
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument("--partitions", type=positive, metavar="N", help="how many (the broker's num.partitions)")
    create.add_argument(
        "--replication-factor", type=positive, metavar="N", help="copies of each (the broker's default)"
    )
    create.add_argument(
        "--config", type=setting, action="append", default=[], metavar="NAME=VALUE", help="a configuration; repeat it"
    )
    create.add_argument("--if-not-exists", action="store_true", help="no error for a topic that is there already")
    create.add_argument("--dry-run", action="store_true", help="only check whether it could be done")

    listing = verb("list", "list topics", LIST_EXAMPLES)
    listing.add_argument("--internal", action="store_true", help="the cluster's own topics too")

    describe = verb("describe", "describe topics: partitions, leaders, replicas", DESCRIBE_EXAMPLES)
    describe.add_argument("names", nargs="*", metavar="TOPIC", help="all, if none is named")
    describe.add_argument("--offsets", action="store_true", help="where each partition starts and ends")

    alter = verb("alter", "change the configuration of topics", ALTER_EXAMPLES)
    alter.add_argument("names", nargs="+", metavar="TOPIC")
    add_changes(alter)

    delete = verb("delete", "delete topics and all that is in them", DELETE_EXAMPLES)
    delete.add_argument("names", nargs="+", metavar="TOPIC")
    delete.add_argument("--if-exists", action="store_true", help="no error for a topic that is not there")
    delete.add_argument("--force", action="store_true", help="the cluster's own topics too, with all they remember")

    expand = verb("expand", "give topics more partitions", EXPAND_EXAMPLES)
    expand.add_argument("names", nargs="+", metavar="TOPIC")
    expand.add_argument("--partitions", type=positive, metavar="N", required=True, help="how many it shall have in all")
    expand.add_argument("--dry-run", action="store_true", help="only check whether it could be done")

    for added in (create, listing, describe, alter, delete, expand):
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        add_broker_options(added)
    return parser
