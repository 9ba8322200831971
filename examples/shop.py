"""A small shop on SQLite: customers and orders that come, change and go at random, from a seed.

Every change is captured by triggers in the transaction that makes it, and sent to the topics shop.customers and
shop.orders. Killed and started again, it goes on where it was: nothing that was committed is lost.
"""

from __future__ import annotations

import argparse
import random
import sqlite3
import time
from pathlib import Path

from ottla.client import Producer
from ottla.pipelines import capture, relay

CITIES = ("Brno", "Oslo", "Porto", "Turku")
STATES = ("new", "paid", "sent", "returned")
TABLES = """
CREATE TABLE IF NOT EXISTS customers (id INTEGER PRIMARY KEY, name TEXT, city TEXT, credit REAL);
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer INTEGER, amount REAL, state TEXT);
CREATE TABLE IF NOT EXISTS progress (transactions INTEGER);
CREATE TABLE IF NOT EXISTS audit (position INTEGER PRIMARY KEY, name TEXT, op TEXT, before TEXT, after TEXT);
"""
# What the tables are checked against: every change, as it was made.
AUDIT = """
CREATE TRIGGER IF NOT EXISTS audited AFTER INSERT ON ottla_outbox BEGIN
INSERT INTO audit VALUES (NEW.position, NEW.name, NEW.op, NEW.before, NEW.after); END
"""


def opened(file: str) -> sqlite3.Connection:
    database = sqlite3.connect(file, timeout=30)
    database.execute("PRAGMA journal_mode=WAL")
    database.executescript(TABLES)
    capture(database, ["customers", "orders"])
    database.execute(AUDIT)
    return database


def transact(database: sqlite3.Connection, number: int, seed: int, keys: int) -> None:
    """One transaction. What it does follows from its number, so that a run can go on after a kill."""
    chance = random.Random(seed * 1_000_003 + number)
    with database:
        for _ in range(chance.randrange(1, 5)):
            _change(database, chance, keys)
        database.execute("DELETE FROM progress")
        database.execute("INSERT INTO progress VALUES (?)", (number + 1,))


def _change(database: sqlite3.Connection, chance: random.Random, keys: int) -> None:
    key, what = chance.randrange(keys), chance.random()
    table = chance.choice(["customers", "orders"])
    if what < 0.45:
        rows = {
            "customers": (key, f"customer {chance.randrange(10**6)}", chance.choice(CITIES), round(chance.random(), 4)),
            "orders": (key, chance.randrange(keys), round(chance.uniform(1, 99), 2), STATES[0]),
        }
        database.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?)", rows[table])
    elif what < 0.85 and table == "customers":
        database.execute("UPDATE customers SET credit = ? WHERE id = ?", (chance.random() * 100, key))
    elif what < 0.85:
        database.execute("UPDATE orders SET state = ? WHERE id = ?", (chance.choice(STATES), key))
    elif what < 0.97:
        database.execute(f"DELETE FROM {table} WHERE id = ?", (key,))
    else:  # a new primary key
        database.execute(f"UPDATE OR IGNORE {table} SET id = ? WHERE id = ?", (key + keys, key))


def run(
    file: str, bootstrap: str, transactions: int, *, rate: float, seed: int, keys: int, closed: Path | None
) -> None:
    """Make transactions at a rate, and relay their changes, until both are done."""
    database = opened(file)
    done = database.execute("SELECT transactions FROM progress").fetchone()
    number = done[0] if done else 0
    begun, first = time.monotonic(), number
    with Producer(bootstrap) as producer:
        while number < transactions and not (closed and closed.exists()):
            until = min(first + int((time.monotonic() - begun) * rate) + 1, transactions)
            while number < until:
                transact(database, number, seed, keys)
                number += 1
            relay(database, producer, "shop.{table}")
            time.sleep(0.02)
        while relay(database, producer, "shop.{table}"):
            pass
    database.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", required=True, metavar="FILE")
    parser.add_argument("--bootstrap", required=True, metavar="HOST:PORT")
    parser.add_argument("--transactions", type=int, default=20_000, metavar="N")
    parser.add_argument("--rate", type=float, default=1_000, metavar="N", help="transactions a second")
    parser.add_argument("--keys", type=int, default=5_000, metavar="N", help="how many rows there may be of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--until", type=Path, metavar="FILE", help="end when this file is there")
    options = parser.parse_args()
    run(
        options.database,
        options.bootstrap,
        options.transactions,
        rate=options.rate,
        seed=options.seed,
        keys=options.keys,
        closed=options.until,
    )


if __name__ == "__main__":
    main()
