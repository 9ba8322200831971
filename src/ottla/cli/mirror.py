"""`ottla mirror`: copy topics from one cluster to another."""

from __future__ import annotations

from ottla.cli.parser import Parser

DESCRIPTION = "Copy topics from one cluster to another, Ottla or Apache Kafka, exactly once; see docs/mirror.md."

EXAMPLES = """\
examples:
  ottla mirror check eu.toml                       can it reach both, what would be copied?
  ottla mirror run eu.toml                         until Ctrl-C; start as many as you like
  ottla mirror status eu.toml
  ottla mirror pause eu.toml
  ottla mirror forget eu.toml --topic orders       after it was deleted and created again
  ottla mirror reset eu.toml --yes

exit codes: 0 done, 1 it failed or a check found a problem, 2 wrong usage
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.connect_run import VERBS

    return VERBS[options.verb](options)


def _parser() -> Parser:
    parser = Parser(prog="ottla mirror", description=DESCRIPTION, epilog=EXAMPLES)
    add_verb = parser.verb_adder()

    def verb(name: str, summary: str) -> Parser:
        added = add_verb(name, summary, EXAMPLES)
        added.add_argument("file", metavar="FILE", help="the mirror, in TOML")
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        added.set_defaults(kind="mirror")
        return added

    running = verb("run", "copy, together with other runners of the same file")
    running.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics and /health there")
    verb("check", "look for what would go wrong, and change nothing")
    verb("status", "show how far it is, how fast, and the last error")
    verb("pause", "let it rest; the runners stay")
    verb("resume", "go on with what was paused")
    verb("restart", "begin the tasks anew, also those that have failed")
    forgetting = verb("forget", "forget how far one topic is: it is copied from the beginning")
    forgetting.add_argument("--topic", metavar="TOPIC", required=True, help="of the source")
    resetting = verb("reset", "forget how far all topics are")
    resetting.add_argument("--yes", action="store_true", help="without asking")
    return parser
