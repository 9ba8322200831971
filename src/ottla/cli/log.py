"""`ottla log`: look into the files of a log, Ottla's or Apache Kafka's. Nothing is ever written."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ottla.cli.parser import Parser

DESCRIPTION = """\
Look into the files of a log. They have the format of Apache Kafka's, so this
works on Kafka's files too. Nothing is written: the files may be those of a
broker that runs."""

EXAMPLES = """\
examples:
  ottla log dump data/orders-0
  ottla log verify data
"""

PATHS = """\
A PATH is a file (.log, .index, .timeindex, .txnindex, .snapshot, .batches, a
checkpoint, partition.metadata, meta.properties), the folder of a partition, or
a data folder with all its partitions."""

DUMP = f"""\
Show what files hold: of a segment its batches, one a line, of an index or a
checkpoint its entries.

{PATHS}"""

DUMP_EXAMPLES = """\
examples:
  ottla log dump data/orders-0/00000000000000000000.log
  ottla log dump --records --offset 1000-1010 data/orders-0
  ottla log dump --records --json data/orders-0 | jq -r 'select(.type == "record").value'
  ottla log dump data/recovery-point-offset-checkpoint

exit codes: 0 all was read, 1 a file is damaged or cannot be read, 2 wrong usage
"""

VERIFY = f"""\
Check everything that can be checked: checksums, lengths, offsets, epochs,
timestamps and records of the batches, the indexes against the batches, the
snapshots, the checkpoints, and the names.

{PATHS}"""

VERIFY_EXAMPLES = """\
examples:
  ottla log verify data
  ottla log verify data/orders-0 data/orders-1
  ottla log verify --compacted backup/settings-0
  ottla log verify --json data | jq 'select(.ok == false)'

A partition is known to be compacted by its batches, or by the
cleaner-offset-checkpoint of its data folder. Of one that has neither, offsets
that are missing are a fault unless --compacted is given.

exit codes: 0 all is well, 1 something is wrong or cannot be read, 2 wrong usage
"""

LARGEST_OFFSET = 2**63 - 2
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    if options.verb == "dump":
        from ottla.cli.log_dump import dump

        return dump(options)
    from ottla.cli.log_verify import verify

    return verify(options)


def offset_range(text: str) -> range:
    """FROM or FROM-TO, both included."""
    match = _RANGE.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or LARGEST_OFFSET)) if match else (0, -1)
    if last < first:
        raise argparse.ArgumentTypeError(f"{text!r} is not FROM or FROM-TO, as in 1000 or 1000-1010")
    return range(first, last + 1)


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return int(text)


def _parser() -> Parser:
    parser = Parser(prog="ottla log", description=DESCRIPTION, epilog=EXAMPLES)
    verbs = parser.add_subparsers(metavar="VERB", title="verbs", dest="verb", required=True)
    dump = verbs.add_parser("dump", help="show what files hold", description=DUMP, epilog=DUMP_EXAMPLES)
    dump.add_argument("paths", nargs="+", metavar="PATH", type=Path)
    dump.add_argument("--records", action="store_true", help="show the records of each batch too")
    dump.add_argument(
        "--offset",
        type=offset_range,
        metavar="FROM[-TO]",
        help="only batches, records and index entries from one offset on, or up to another, both included",
    )
    dump.add_argument("--limit", type=positive, metavar="N", help="at most N batches (or records, entries) of a file")
    dump.add_argument("--full", action="store_true", help="show long keys and values whole")
    dump.add_argument("--json", action="store_true", help="one JSON object a line")
    verify = verbs.add_parser("verify", help="check files", description=VERIFY, epilog=VERIFY_EXAMPLES)
    verify.add_argument("paths", nargs="+", metavar="PATH", type=Path)
    verify.add_argument("--compacted", action="store_true", help="offsets may be missing, as compaction leaves them")
    verify.add_argument("--json", action="store_true", help="one JSON object a line")
    return parser
