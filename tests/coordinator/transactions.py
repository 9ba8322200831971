"""The machine of transactions on a driver, asked in short, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TypeVar

from ottla.coordinator.transactions.machine import Identity, PartitionCodes, TransactionMachine, TransactionSettings
from ottla.coordinator.transactions.producer_ids import NoProducerId
from ottla.coordinator.transactions.transaction import VERSION_1, VERSION_2, Transaction
from tests.coordinator.driver import Asked, Driver

A = TypeVar("A")

ID = "payments"
T0, T1 = ("t", 0), ("t", 1)


class Transactions:
    """Producer ids are 0, 1, 2, ..., and go on after a crash."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.has_ids = True
        self._ids = count()
        self._epoch = 0
        self.driver = Driver(self._make)

    def _make(self) -> TransactionMachine:
        self._epoch += 1
        return TransactionMachine(self._epoch, self._new_id, lambda: self.settings)

    def _new_id(self) -> int:
        if not self.has_ids:
            raise NoProducerId
        return next(self._ids)

    def __getitem__(self, transactional_id: str) -> Transaction:
        return self.driver.machine.transactions[transactional_id]

    # Requests

    def init(
        self, transactional_id: str = ID, expected: tuple[int, int] | None = None, timeout_ms: int = 60_000
    ) -> Identity:
        asked = self.driver.ask(
            lambda machine, operation, reply: machine.init_producer_id(
                operation, reply, transactional_id, timeout_ms, expected
            )
        )
        return _answer(asked, Identity)

    def add(
        self,
        producer: tuple[int, int],
        partitions: Iterable[tuple[str, int]] = (T0,),
        transactional_id: str = ID,
        version: int = VERSION_2,
    ) -> PartitionCodes:
        asked = self.driver.ask(
            lambda machine, operation, reply: machine.add_partitions(
                operation, reply, transactional_id, producer, list(partitions), version
            )
        )
        return _answer(asked, dict)

    def verify(
        self, producer: tuple[int, int], partitions: Iterable[tuple[str, int]] = (T0,), transactional_id: str = ID
    ) -> PartitionCodes:
        asked = self.driver.ask(
            lambda machine, operation, reply: machine.verify_partitions(
                operation, reply, transactional_id, producer, list(partitions)
            )
        )
        return _answer(asked, dict)

    def end(
        self, producer: tuple[int, int], *, is_commit: bool, version: int = VERSION_2, transactional_id: str = ID
    ) -> Identity:
        asked = self.driver.ask(
            lambda machine, operation, reply: machine.end(
                operation, reply, transactional_id, producer, is_commit=is_commit, version=version
            )
        )
        return _answer(asked, Identity)

    def write_markers(self) -> None:
        """All markers that were asked for so far reach their partitions."""
        markers, self.driver.markers = self.driver.markers, []
        for one in markers:
            producer = one.producer_id, one.producer_epoch
            self.driver.run(
                lambda machine, operation, one=one, producer=producer: machine.markers_written(  # type: ignore[misc]
                    operation, one.transactional_id, producer
                )
            )

    # Ways to a state

    def ongoing(self, version: int = VERSION_2) -> tuple[int, int]:
        producer = self.init()[1:]
        assert not any(self.add(producer, version=version).values())
        return producer

    def prepared(self, *, is_commit: bool, version: int = VERSION_2) -> tuple[int, int]:
        producer = self.ongoing(version)
        assert not self.end(producer, is_commit=is_commit, version=version).code
        return producer

    def complete(self, *, is_commit: bool, version: int = VERSION_2) -> tuple[int, int]:
        producer = self.prepared(is_commit=is_commit, version=version)
        self.write_markers()
        return producer


States = dict[str, Callable[[Transactions, int], tuple[int, int]]]
STATES: States = {
    "Empty": lambda transactions, version: transactions.init()[1:],
    "Ongoing": lambda transactions, version: transactions.ongoing(version),
    "PrepareCommit": lambda transactions, version: transactions.prepared(is_commit=True, version=version),
    "PrepareAbort": lambda transactions, version: transactions.prepared(is_commit=False, version=version),
    "CompleteCommit": lambda transactions, version: transactions.complete(is_commit=True, version=version),
    "CompleteAbort": lambda transactions, version: transactions.complete(is_commit=False, version=version),
}
"""How each state is reached, by a client of a version; the producer is the one that the transaction had."""
VERSIONS = (VERSION_1, VERSION_2)


def _answer(asked: Asked, kind: type[A]) -> A:
    assert isinstance(asked.response, kind), asked.refused
    return asked.response
