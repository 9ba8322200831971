"""`ottla connect`: run connectors, look at them, and say what they are to do."""

from __future__ import annotations

from ottla.cli.parser import Parser

DESCRIPTION = "Move records between topics and files, databases and the like, exactly once; see docs/connect.md."

EXAMPLES = """\
examples:
  ottla connect check shop.toml                    can it reach, may it read, would rows be lost?
  ottla connect run shop.toml                      until Ctrl-C; start as many as you like
  ottla connect status shop.toml
  ottla connect pause shop.toml --connector orders
  ottla connect restart shop.toml                  after what made it fail is mended
  ottla connect reset shop.toml --connector orders --yes

exit codes: 0 done, 1 it failed or a check found a problem, 2 wrong usage
"""


def run(arguments: list[str]) -> int:
    options = _parser().parse_args(arguments)
    from ottla.cli.connect_run import VERBS

    return VERBS[options.verb](options)


def _parser() -> Parser:
    parser = Parser(prog="ottla connect", description=DESCRIPTION, epilog=EXAMPLES)
    add_verb = parser.verb_adder()

    def verb(name: str, summary: str) -> Parser:
        added = add_verb(name, summary, EXAMPLES)
        added.add_argument("file", metavar="FILE", help="the connectors, in TOML")
        added.add_argument("--connector", metavar="NAME", help="only this one")
        added.add_argument("--json", action="store_true", help="one JSON object a line")
        added.set_defaults(kind="connect")
        return added

    running = verb("run", "run the connectors, together with other runners of the same file")
    running.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics and /health there")
    verb("check", "look for what would go wrong, and change nothing")
    verb("status", "show what the connectors do, how far they are, and the last error")
    verb("pause", "let the connectors rest; the runners stay")
    verb("resume", "go on with what was paused")
    verb("restart", "begin the tasks anew, also those that have failed")
    resetting = verb("reset", "forget how far a connector is: it begins at the beginning")
    resetting.add_argument("--yes", action="store_true", help="without asking")
    return parser
