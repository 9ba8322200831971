"""`ottla topics`: create, list, describe, alter, delete, expand and move topics."""

from __future__ import annotations

import argparse

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, not_negative, seconds, setting
from ottla.cli.configs import add_changes
from ottla.cli.log import positive
from ottla.cli.parser import Parser

PARTITIONERS = ("murmur2", "crc32")
DESCRIPTION = "Create, list, describe, alter, delete, expand and move topics, of Ottla or Apache Kafka."

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
  ottla topics create orders invoices --partitions 6 --replication 3
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
  ottla topics expand orders --to 12 --in-order

A key may belong to another partition afterwards: what was written before
stays where it is. With --in-order N is a multiple of what the topic has, and
groups read every key in the order in which it was written: a new partition
is kept from a group until it has committed what was written before it. The
cluster must be of Ottla.

{EXIT_CODES}
"""


REASSIGN_EXAMPLES = f"""\
examples:
  ottla topics reassign orders --to 1,2,4             its replicas go to these brokers
  ottla topics reassign orders --to 4,5 --partition 0 --wait 600
  ottla topics reassign orders --to 1,2,3 --replication 3
  ottla topics reassign orders --to 4,5 --throttle 10000000
  ottla topics reassign orders --verify               when all are there, the throttle goes
  ottla topics reassign                               what is on its way
  ottla topics reassign orders --cancel

Partitions begin with another of the brokers each, so that all lead a share.

{EXIT_CODES}
"""

ELECT_EXAMPLES = f"""\
examples:
  ottla topics elect                    preferred leaders, wherever they do not lead
  ottla topics elect orders
  ottla topics elect orders --unclean   anybody, where no replica in sync is alive

An unclean leader may lack records that were acknowledged: they are lost.

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.topics_run import VERBS

    return VERBS[options.verb](options)


def _parser() -> Parser:
    parser = Parser(prog="ottla topics", description=DESCRIPTION, epilog=EXAMPLES)
    verb = parser.verb_adder()

    create = verb("create", "create topics", CREATE_EXAMPLES)
    create.add_argument("names", nargs="+", metavar="TOPIC")
    create.add_argument("--partitions", type=positive, metavar="N", help="how many (the broker's num.partitions)")
    create.add_argument(
        "--replication",
        "--replication-factor",
        dest="replication_factor",
        type=positive,
        metavar="N",
        help="copies of each (the broker's default)",
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
    expand.add_argument(
        "--partitions", "--to", type=positive, metavar="N", required=True, help="how many it shall have in all"
    )
    expand.add_argument("--in-order", action="store_true", help="keep the order of every key")
    expand.add_argument(
        "--partitioner",
        choices=PARTITIONERS,
        default=PARTITIONERS[0],
        help="how its producers choose the partition of a key: as Kafka's, or as librdkafka's do by default",
    )
    expand.add_argument(
        "--quiet-ms",
        type=not_negative,
        default=2000,
        metavar="MS",
        help="for how long nothing may come from producers that do not know of the new partitions (2000)",
    )
    expand.add_argument("--dry-run", action="store_true", help="only check whether it could be done")

    reassign = verb("reassign", "move topics to other brokers, or tell what is on its way", REASSIGN_EXAMPLES)
    reassign.add_argument("names", nargs="*", metavar="TOPIC")
    reassign.add_argument("--partition", type=not_negative, action="append", metavar="N", help="only this; repeat it")
    reassign.add_argument("--to", dest="brokers", type=_brokers, metavar="ID,ID,...", help="the brokers to have them")
    reassign.add_argument("--replication", type=positive, metavar="N", help="copies of each (as many as before)")
    reassign.add_argument("--cancel", action="store_true", help="give up the moves that are under way")
    reassign.add_argument(
        "--throttle", type=positive, metavar="BYTES", help="copy so many a second at most; --wait or --verify ends that"
    )
    reassign.add_argument("--verify", action="store_true", help="tell whether all are there, and then end throttles")
    reassign.add_argument("--wait", type=seconds, metavar="SECONDS", help="so long at most, until all are there")

    elect = verb("elect", "have the preferred replicas lead again", ELECT_EXAMPLES)
    elect.add_argument("names", nargs="*", metavar="TOPIC", help="all, if none is named")
    elect.add_argument("--partition", type=not_negative, action="append", metavar="N", help="only this; repeat it")
    elect.add_argument("--unclean", action="store_true", help="any replica, where none in sync is alive")

    for added in (create, listing, describe, alter, delete, expand, reassign, elect):
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        add_broker_options(added)
    return parser


def _brokers(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different brokers, as in 1,2,3")
    return [int(part) for part in parts]
