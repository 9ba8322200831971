"""The table in docs/broker-configuration.md. Run as a module, it writes the table anew from the code."""

import re
from pathlib import Path

from ottla.broker.config.dynamic import ONE_BROKER_ONLY, is_dynamic
from ottla.broker.config.layers import broker_settings
from ottla.config import Definition, text_of

PAGE = Path(__file__).parents[2] / "docs" / "broker-configuration.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of table -->)", re.DOTALL)
HEADINGS = ("name", "kind", "default", "values", "what it does", "Ottla", "changes")


def table() -> str:
    """The table as the code would have it."""
    rows = [HEADINGS, ("---",) * len(HEADINGS), *map(row, broker_settings().values())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(definition: Definition) -> tuple[str, ...]:
    return (
        f"`{definition.name}`",
        definition.kind.name.lower(),
        text_of(definition.default) or "(empty)",
        "" if definition.check is None else str(definition.check),
        definition.documentation,
        "keeps" if definition.is_kept_only else "acts",
        "while it runs" if is_dynamic(definition.name) and definition.name not in ONE_BROKER_ONLY else "at a start",
    )


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
