"""The mysql source in tests: its configuration, and what its topic says of a table."""

import json
import time
from typing import Any

from ottla.client import ClientOptions
from ottla.connect.state import load_states
from tests.connect.mariadb import MariaDb
from tests.connect.running import WAIT_SECONDS, records_of

NAME = "shop"


def source(mariadb: MariaDb, database: str, **settings: Any) -> dict[str, dict[str, Any]]:
    given = {"type": "mysql-source", "host": "127.0.0.1", "port": mariadb.port, "user": "root",
             "tables": [f"{database}.*"], "topic": "{table}", "transaction_ms": 20, **settings}  # fmt: skip
    return {NAME: given}


def events_of(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    return [json.loads(record.value) for record in records_of(bootstrap, topic) if record.value is not None]


def wait_for_events(bootstrap: str, topic: str, count: int, seconds: float = WAIT_SECONDS) -> list[dict[str, Any]]:
    """At least so many; what is wrong is told at once."""
    deadline = time.monotonic() + seconds
    while len(records_of(bootstrap, topic)) < count:
        told = state_of(bootstrap)
        assert told is None or told.error is None, told.error
        assert time.monotonic() < deadline, f"{len(records_of(bootstrap, topic))} of {count}: {told}"
        time.sleep(0.05)
    return events_of(bootstrap, topic)


def table_of(events: list[dict[str, Any]]) -> dict[str, Any]:
    """What the events make of the table, each after the other."""
    rows: dict[str, Any] = {}
    for event in events:
        key = json.dumps(event["key"])
        if event["op"] == "d":
            rows.pop(key, None)
        else:
            rows[key] = event["after"]
    return rows


def check_once(events: list[dict[str, Any]]) -> None:
    """No change of the binlog is there twice, and none goes back."""
    places = [(*event["position"], event["op"] == "d") for event in events if event["op"] != "r"]
    assert len(set(places)) == len(places)
    last: dict[str, Any] = {}
    for event in events:
        key = json.dumps(event["key"])
        assert last.get(key, [0]) <= event["position"]
        last[key] = event["position"]


def state_of(bootstrap: str) -> Any:
    states, _ = load_states(bootstrap, ClientOptions())
    return states.of(NAME).tasks.get("0")


def rows_in(mariadb: MariaDb, database: str, table: str, columns: list[str]) -> dict[str, Any]:
    """The table as it is, in the form of `table_of`, for columns of whole numbers and texts; the first is the key."""
    found = mariadb.run(f"SELECT {', '.join(columns)} FROM {table}", database=database)
    return {json.dumps({columns[0]: row[0]}): dict(zip(columns, row, strict=True)) for row in found}
