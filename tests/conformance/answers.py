"""Apache Kafka's answers as they are kept: a file a group, an entry an exchange."""

from __future__ import annotations

import difflib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path

from tests.conformance.exchange import Exchange
from tests.conformance.rendering import Json, pretty
from tests.conformance.script import Script

FOLDER = Path(__file__).parent / "answers"


def answers_of(exchange: Exchange, address: tuple[str, int]) -> dict[str, Json]:
    """Runs an exchange against a broker: the APIs it took and what was answered, step by step."""
    with Script(address, secrets.token_hex(4)) as script:
        exchange.run(script)
    return {"apis": sorted(script.apis), "steps": script.steps}


def read_answers(group: str) -> dict[str, Json]:
    """By exchange; empty where nothing was recorded yet."""
    path = FOLDER / f"{group}.json"
    answers: dict[str, Json] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return answers


def write_answers(group: str, answers: Mapping[str, Json]) -> None:
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{group}.json").write_text(pretty(dict(answers)) + "\n", encoding="utf-8")


def difference(expected: Json, actual: Json) -> str:
    """Line by line, empty where there is none."""
    if expected == actual:
        return ""
    return "\n".join(
        difflib.unified_diff(
            pretty(expected).splitlines(), pretty(actual).splitlines(), "Apache Kafka", "here", lineterm="", n=4
        )
    )
