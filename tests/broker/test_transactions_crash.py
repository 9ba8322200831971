"""The broker stops at every single write of the end of a transaction: afterwards it is decided once, and everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from ottla.testing.files import Effect, SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY, RandomLoss
from tests.broker.transactional_client import TOPIC, VERSION_1, VERSION_2, TransactionalClient, all_read
from tests.sim.simulated_broker import SimulatedBroker

Ending = Callable[[SimulatedFiles, int], None]
STEPS = 40


def start(folder: Path, *, syncs: bool, files: SimulatedFiles | None = None) -> SimulatedBroker:
    return SimulatedBroker(folder, syncs=syncs, files=files, transaction_state_log_num_partitions="1")


def kill(files: SimulatedFiles, number: int) -> None:
    """Only the process ends."""


def lose_all_unsynced(files: SimulatedFiles, number: int) -> None:
    files.crash(SYNCED_ONLY)


def lose_at_random(files: SimulatedFiles, number: int) -> None:
    files.crash(RandomLoss(Random(number)))


def ready(folder: Path, *, syncs: bool, version: int) -> TransactionalClient:
    """A client with an open transaction in two partitions, on a broker that is quiet."""
    folder.mkdir()
    broker = start(folder, syncs=syncs)
    broker.create(TOPIC, 2)
    client = TransactionalClient(broker, version=version)
    client.init()
    for index in (0, 1):
        if version == VERSION_1:
            assert client.add(index) == 0
        assert client.write(index, 0, b"%d" % index) == 0
    broker.advance(1)
    return client


def end(client: TransactionalClient, *, is_commit: bool) -> int | None:
    """Ask for the end and let everything follow from it; the answer's code, if one came before the crash."""
    number = client.connection.send(client.end_request(is_commit=is_commit), client.end_version)
    for _ in range(STEPS):
        if client.broker.files.is_down:
            break
        client.broker.advance(0.001)
    client.connection.step()
    answer = client.connection.answers.get(number)
    return None if answer is None else answer.error_code  # type: ignore[attr-defined]


def operations(folder: Path, *, syncs: bool, version: int, is_commit: bool) -> int:
    """How many there are from the request to the quiet after it."""
    client = ready(folder, syncs=syncs, version=version)
    before = client.broker.files.operation_count
    assert end(client, is_commit=is_commit) == 0
    count = client.broker.files.operation_count - before
    client.broker.stop()
    return count


@pytest.mark.filterwarnings("ignore")  # what is left of a broker that was stopped in the middle
@pytest.mark.parametrize(
    ("syncs", "ending"),
    [(False, kill), (True, lose_all_unsynced), (True, lose_at_random)],
    ids=["the process ends", "the unsynced is lost", "some of the unsynced is lost"],
)
@pytest.mark.parametrize("version", [VERSION_1, VERSION_2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_crash_at_every_write(tmp_path: Path, syncs: bool, ending: Ending, version: int, is_commit: bool) -> None:
    count = operations(tmp_path / "all", syncs=syncs, version=version, is_commit=is_commit)
    assert count >= 4  # decided, told to two partitions, complete
    for number in range(1, count + 1):
        folder = tmp_path / str(number)
        client = ready(folder, syncs=syncs, version=version)
        files = client.broker.files
        files.arm(files.operation_count + number, Effect.CRASH)
        code = end(client, is_commit=is_commit)
        assert files.is_down
        client.broker.abandon()
        ending(files, number)
        check_after(folder, files, client, code, is_commit=is_commit, syncs=syncs)


@pytest.mark.filterwarnings("ignore")
def test_a_loss_of_power_after_the_process_has_ended(tmp_path: Path) -> None:
    """What the second broker found in the log of the first may be lost as long as nobody has synced it."""
    count = operations(tmp_path / "all", syncs=True, version=VERSION_2, is_commit=True)
    for number in range(1, count + 1):
        for second in range(1, count + 1):
            folder = tmp_path / f"{number} {second}"
            client = ready(folder, syncs=True, version=VERSION_2)
            files = client.broker.files
            files.arm(files.operation_count + number, Effect.CRASH)
            code = end(client, is_commit=True)
            client.broker.abandon()
            successor = start(folder, syncs=True, files=files)
            files.arm(files.operation_count + second, Effect.CRASH)
            successor.advance(0.2)
            successor.abandon()
            files.crash(SYNCED_ONLY)
            check_after(folder, files, client, code, is_commit=True, syncs=True)


def check_after(
    folder: Path, files: SimulatedFiles, client: TransactionalClient, code: int | None, *, is_commit: bool, syncs: bool
) -> None:
    broker = start(folder, syncs=syncs, files=files)
    successor = TransactionalClient(broker, version=client.version)
    broker.advance(1)
    complete = "CompleteCommit" if is_commit else "CompleteAbort"
    if successor.state() != complete:
        assert successor.state() == "Ongoing"
        assert code != 0  # nobody was told that it was decided
        assert all_read(broker, [0, 1]) == [[], []]
    # The client asks again, as it got no answer.
    assert successor.end(is_commit=is_commit, producer=client.producer) == 0
    broker.advance(1)
    assert successor.state() == complete
    assert all_read(broker, [0, 1]) == ([[b"0"], [b"1"]] if is_commit else [[], []])
    broker.stop()
