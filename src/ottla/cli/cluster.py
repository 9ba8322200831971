"""`ottla cluster`: several brokers on this machine, and how a cluster is."""

from __future__ import annotations

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, seconds
from ottla.cli.log import positive
from ottla.cli.parser import Parser

DEFAULT_DATA = "ottla-cluster"
DEFAULT_PORT = 9092
DESCRIPTION = "Run several brokers on this machine, and tell how a cluster is, of Ottla or Apache Kafka."

EXAMPLES = """\
examples:
  ottla cluster up --brokers 3
  ottla cluster status
  ottla cluster unregister 3
"""

UP_EXAMPLES = f"""\
examples:
  ottla cluster up                                   three brokers, on ports {DEFAULT_PORT} to {DEFAULT_PORT + 2}
  ottla cluster up --brokers 5 --data my --port 9192
  ottla cluster up --restart --set num.partitions=6

Each broker is a process. Ctrl-C stops them all, one after the other.
New topics have as many replicas as there are brokers, three at most.
"""

STATUS_EXAMPLES = f"""\
examples:
  ottla cluster status
  ottla cluster status --json | jq .under_replicated
  ottla cluster status --wait 60      until every replica is in sync

{EXIT_CODES}
"""

UNREGISTER_EXAMPLES = f"""\
examples:
  ottla cluster unregister 3

Move its partitions to other brokers first (ottla topics reassign): they stay assigned to it.
A broker that runs takes no part any more until it is started anew.

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.verb == "up":
        from ottla.cli.cluster_up import up

        return up(options)
    if options.verb == "unregister":
        from ottla.cli.cluster_unregister import unregister

        return unregister(options)
    from ottla.cli.cluster_status import status

    return status(options)


def _parser() -> Parser:
    parser = Parser(prog="ottla cluster", description=DESCRIPTION, epilog=EXAMPLES)
    verb = parser.verb_adder()

    up = verb("up", "run several brokers on this machine, for development", UP_EXAMPLES)
    up.add_argument("--brokers", type=positive, default=3, metavar="N", help="how many (3)")
    up.add_argument("--data", default=DEFAULT_DATA, metavar="DIR", help=f"where the data lies (./{DEFAULT_DATA})")
    up.add_argument("--port", type=_port, default=DEFAULT_PORT, metavar="P", help=PORT_HELP)
    up.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting of each; repeat it")
    up.add_argument("--restart", action="store_true", help="start a broker again that has died")
    up.add_argument("--log-level", choices=("debug", "info", "warning", "error"), default="warning")

    status = verb("status", "tell who is there, who decides, and what lacks replicas or a leader", STATUS_EXAMPLES)
    status.add_argument("--wait", type=seconds, metavar="SECONDS", help="so long at most, until all is well; else fail")
    status.add_argument("--json", action="store_true", help="one JSON object")
    add_broker_options(status)

    unregister = verb("unregister", "forget a broker that will not come back", UNREGISTER_EXAMPLES)
    unregister.add_argument("broker", type=_broker_id, metavar="ID", help="its number (node.id)")
    unregister.add_argument("--json", action="store_true", help="one JSON object")
    add_broker_options(unregister)
    return parser


PORT_HELP = f"of the first, and the next ones for the others; 0: any that are free ({DEFAULT_PORT})"


def _broker_id(text: str) -> int:
    import argparse

    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a broker")
    return int(text)


def _port(text: str) -> int:
    import argparse

    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a port")
    return int(text)
