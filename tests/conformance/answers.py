"""Apache Kafka's answers as they are kept: a file a group, an entry an exchange, a line a step."""

from __future__ import annotations

import difflib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.exchange import Exchange
from tests.conformance.rendering import Json, pretty
from tests.conformance.script import Addresses, Script

FOLDER = Path(__file__).parent / "answers"


def answers_of(exchange: Exchange, address: tuple[str, int], brokers: Addresses | None = None) -> dict[str, Json]:
    """Runs an exchange against a broker, or several: the APIs it took and what was answered, step by step."""
    with Script(address, secrets.token_hex(4), brokers) as script:
        exchange.run(script)
    return {"apis": sorted(script.apis), "steps": script.steps}


def read_answers(group: str) -> dict[str, Json]:
    """By exchange; empty where nothing was recorded yet."""
    path = FOLDER / f"{group}.json"
    answers: dict[str, Json] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return answers


def write_answers(group: str, answers: Mapping[str, Json]) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{group}.json").write_text(in_lines(answers), encoding="utf-8")


def in_lines(answers: Mapping[str, Json]) -> str:
    """JSON in which a step is a line, so that a changed answer is a changed line."""
    entries = []
    for name, entry in answers.items():
        steps = ",\n".join(f"  {_line(step)}" for step in entry["steps"])
        entries.append(f'{_line(name)}: {{"apis": {_line(entry["apis"])}, "steps": [\n{steps}\n]}}')
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _line(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def difference(expected: Json, actual: Json) -> str:
    """Line by line, empty where there is none."""
    if expected == actual:
        return ""
    return "\n".join(
        difflib.unified_diff(
            pretty(expected).splitlines(), pretty(actual).splitlines(), "Apache Kafka", "here", lineterm="", n=4
        )
    )
