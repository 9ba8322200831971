"""All exchanges, group by group: every module of exchanges/ holds one group."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.conformance.exchange import Exchange, Exchanges


def all_groups() -> list[Exchanges]:
    modules = sorted(path.stem for path in (Path(__file__).parent / "exchanges").glob("*.py"))
    groups: list[Exchanges] = [import_module(f"tests.conformance.exchanges.{name}").exchanges for name in modules]
    return groups


def all_exchanges() -> list[Exchange]:
    return [exchange for group in all_groups() for exchange in group.all]
