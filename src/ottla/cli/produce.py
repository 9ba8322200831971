"""`ottla produce`: write records to a topic, one for each line of standard input."""

from __future__ import annotations

from ottla.cli.broker_options import EXIT_CODES, add_broker_options, not_negative, setting
from ottla.cli.log import positive
from ottla.cli.parser import Parser
from ottla.cli.record_text import FORMATS, point_in_time, separator

DESCRIPTION = """\
Write records to a topic, one for each line of standard input (or of files).

A line is the value, as it is (text), in hexadecimal or base64; with
--key-separator the key stands in front. In the format json a line is an object
with "value" and, as wanted, "key", "headers" (a list of [name, value]),
"partition" and "timestamp"; bytes that are no text are {"base64": "..."}.
What 'ottla consume --format json' prints can be read so.

A record goes to the partition that is given, else to that of its key, as
Kafka's own producers choose it, else to one after the other."""

EXAMPLES = rf"""examples:
  ottla produce orders --key-separator : --codec zstd < orders.txt
  echo hello | ottla produce greetings
  ottla produce orders --key-separator '\t' --header source=import --file orders.tsv
  ottla produce events --format json --acks 1 < events.jsonl
  ottla consume a --from-beginning --to-end --format json | ottla produce b --format json

{EXIT_CODES}
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.produce_run import produce

    return produce(options)


def _parser() -> Parser:
    parser = Parser(prog="ottla produce", description=DESCRIPTION, epilog=EXAMPLES)
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--file", action="append", default=[], metavar="FILE", help="read this in place of standard input; repeat it"
    )
    parser.add_argument("--format", choices=FORMATS, default="text", help="how lines are written (text)")
    parser.add_argument("--json", action="store_true", help="say as JSON where each record was written")
    records = parser.add_argument_group("records")
    keys = records.add_mutually_exclusive_group()
    keys.add_argument("--key-separator", type=separator, metavar="TEXT", help=r"what stands between key and value; \t")
    keys.add_argument("--key", metavar="TEXT", help="the key of every record that has none")
    records.add_argument("--null", metavar="TEXT", help="a key or value that is this text is null")
    records.add_argument(
        "--header", type=setting, action="append", default=[], metavar="NAME=VALUE", help="of every record; repeat it"
    )
    records.add_argument("--partition", type=not_negative, metavar="N", help="of every record that names none")
    records.add_argument(
        "--timestamp", type=point_in_time, metavar="TIME", help="of every record that has none (the time it is sent)"
    )
    sending = parser.add_argument_group("sending")
    sending.add_argument("--acks", choices=("all", "1", "0"), default="all", help="who has to have it (all in sync)")
    sending.add_argument("--codec", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none")
    sending.add_argument("--level", type=int, metavar="N", help="of compression (the codec's own)")
    sending.add_argument("--batch-bytes", type=positive, default=512 * 1024, metavar="N", help="of a batch (524288)")
    sending.add_argument("--create", action="store_true", help="let the broker create the topic if it may")
    add_broker_options(parser)
    return parser
