"""The command `python -m bench`."""

import argparse
import importlib
from itertools import chain
from pathlib import Path

from bench.picture import draw
from bench.report import Result, describe_machine, format_table, write_json

NAMES = (
    *("wire", "records", "log", "log_size", "hot_path", "bulk"),
    *(
        "broker",
        "cluster",
        "groups",
        "transactions",
        "testkit",
        "client",
        "spark_source",
        "tables",
        "mysql",
        "mirror",
        "growing",
    ),
)

EXAMPLES = """examples:
  python -m bench                      everything
  python -m bench wire log --quick     two of them, small inputs
  python -m bench --json results.json  also write the figures as JSON
  python -m bench broker groups --picture ratios.png  beside Apache Kafka, and draw it
  python -m bench cluster              three brokers beside three of Apache Kafka
  python -m bench client testkit       the client beside others, and what a broker costs a test
"""


def main() -> None:
    present = [name for name in NAMES if (Path(__file__).parent / f"{name}.py").exists()]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure Ottla. Each figure is a median with its quartiles.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to measure: {', '.join(present)}")
    parser.add_argument("--quick", action="store_true", help="small inputs: a look, not a measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures into FILE too")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw what is compared with Apache Kafka, as PNG")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in present]
    if unknown:
        parser.error(f"no such bench: {', '.join(unknown)} (there are: {', '.join(present)})")
    sections = run(options.names or present, options.quick)
    if options.json:
        write_json(options.json, sections)
    if options.picture:
        try:
            draw(options.picture, chain.from_iterable(sections.values()))
        except ModuleNotFoundError:
            print("no picture without matplotlib: pip install -e '.[bench]'")


def run(names: list[str], quick: bool) -> dict[str, list[Result]]:
    """Runs the named benches and prints each one's table as soon as it is done."""
    print(describe_machine() + (" (quick: small inputs)" if quick else ""))
    sections: dict[str, list[Result]] = {}
    for name in names:
        print(f"\n{name}", flush=True)
        module = importlib.import_module(f"bench.{name}")
        sections[name] = module.run(quick)
        print(getattr(module, "format_results", format_table)(sections[name]), flush=True)
    return sections


if __name__ == "__main__":
    main()
