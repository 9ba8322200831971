"""The `ottla` command: finds the verb, runs it, and turns whatever goes wrong into a sentence and an exit code."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from ottla import __version__
from ottla.cli import output
from ottla.cli.errors import FAILED, INTERRUPTED, UNREAD, WRONG_USAGE, CommandFailed, UsageError
from ottla.cli.parser import Parser

# Each verb is a module in this folder, loaded when it is asked for; its `run` takes the arguments behind the verb.
VERBS = {
    "serve": "run a broker",
    "cluster": "run several brokers on this machine, tell how a cluster is",
    "topics": "create, list, describe, alter, delete, expand and move topics",
    "configs": "describe and alter the configuration of topics and brokers",
    "groups": "list, describe and delete groups, show their lag, move their offsets",
    "transactions": "list, describe and abort transactions, find those that hang",
    "produce": "write records to a topic, from standard input",
    "consume": "read records of a topic, to standard output",
    "connect": "move records between topics and files, databases and the like, exactly once",
    "mirror": "copy topics from one cluster to another, exactly once",
    "pipeline": "keep lake tables in step with topics of changes, on Spark",
    "log": "look into the files of a log: show them, check them",
}

EXAMPLES = """\
examples:
  ottla topics create orders               create a topic
  ottla produce orders < orders.txt        write a record for each line
  ottla consume orders --from-beginning    read them
  ottla log dump data/orders-0             show what a partition's files hold
  ottla log verify data                    check every file of a data folder
  ottla log --help                         more on one verb
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    try:
        output.prepare()
        try:
            code = _run(list(sys.argv[1:] if argv is None else argv))
        except SystemExit as ended:  # argparse has printed the help or the version
            code = int(ended.code or 0)
        output.flush()
    except UsageError as error:
        return _complain(str(error), WRONG_USAGE)
    except CommandFailed as error:
        return _complain(str(error), FAILED)
    except BrokenPipeError:
        output.discard()  # whoever read it has seen enough
        return UNREAD
    except OSError as error:
        return _complain(_sentence(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _run(arguments: list[str]) -> int:
    parser = _parser()
    if not arguments:
        parser.print_help()
        return WRONG_USAGE
    # Only what stands before the verb is parsed here, so that no verb is loaded but the one that runs.
    parser.parse_args(arguments[:1])
    run = importlib.import_module(f"ottla.cli.{arguments[0]}").run
    code: int = run(arguments[1:])
    return code


def _parser() -> Parser:
    parser = Parser(
        prog="ottla",
        description="Ottla, a replicated message log that speaks Kafka's wire protocol.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"ottla {__version__}")
    verbs = parser.add_subparsers(metavar="VERB", title="verbs", required=True)
    for name, summary in VERBS.items():
        verbs.add_parser(name, help=summary, add_help=False)
    return parser


def _sentence(error: OSError) -> str:
    reason = (error.strerror or str(error)).lower()
    return f"{error.filename}: {reason}" if error.filename else reason


def _complain(sentence: str, code: int) -> int:
    print(f"ottla: {sentence}", file=sys.stderr)
    return code
