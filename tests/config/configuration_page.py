"""The table in docs/topic-configuration.md. Run as a module, it writes the table anew from the code."""

import re
from pathlib import Path

from ottla.config import Definition, text_of
from ottla.log.topic_config import TOPIC_SETTINGS

PAGE = Path(__file__).parents[2] / "docs" / "topic-configuration.md"
TABLE = re.compile(r"(?<=<!-- table -->\n).*(?=<!-- end of table -->)", re.DOTALL)
HEADINGS = ("name", "kind", "default", "values", "what it does", "Ottla", "from the broker's")


def table() -> str:
    """The table as the code would have it."""
    shown = [definition for definition in TOPIC_SETTINGS.values() if not definition.is_internal]
    rows = [HEADINGS, ("---",) * len(HEADINGS), *map(row, shown)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def row(definition: Definition) -> tuple[str, ...]:
    default = text_of(definition.default)
    return (
        f"`{definition.name}`",
        definition.kind.name.lower(),
        default or "(empty)",
        "" if definition.check is None else str(definition.check),
        definition.documentation,
        "keeps" if definition.is_kept_only else "acts",
        ", ".join(f"`{synonym.name}`" for synonym in definition.synonyms),
    )


if __name__ == "__main__":
    PAGE.write_text(TABLE.sub(lambda _: table(), PAGE.read_text(encoding="utf-8")), encoding="utf-8")
