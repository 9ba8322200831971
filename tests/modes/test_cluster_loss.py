"""Cluster loss: a record was acknowledged, and its broker lost it.

One broker stands for the cluster: what it has only in the page cache goes with the power, as what only a leader has
goes with the leader. That more replicas keep what one has lost is shown where there are replicas.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ottla.testing import LocalBroker
from ottla.testing.files import SimulatedFiles
from ottla.testing.loss import SYNCED_ONLY, RandomLoss
from tests.sim.simulated_broker import FETCH_VERSION, SimulatedBroker, fetch_request, fetched_values

VALUES = [b"%d" % number for number in range(20)]


def acknowledged(folder: Path, *, syncs: bool) -> SimulatedFiles:
    """What is left of the files of a broker that has acknowledged all values, when it ends without a word."""
    broker = SimulatedBroker(folder, syncs=syncs)
    broker.create("t")
    client = broker.client()
    for value in VALUES:
        assert broker.produce(client, "t", value).error_code == 0
    broker.abandon()
    return broker.files


def values_left(folder: Path, files: SimulatedFiles) -> list[bytes | None]:
    """What a consumer gets when the broker runs again."""
    broker = SimulatedBroker(folder, files=files)
    answer = broker.client().ask(fetch_request("t", 0), FETCH_VERSION)
    values = fetched_values(answer.responses[0].partitions[0])
    broker.stop()
    return values


def test_a_loss_of_power_takes_what_is_only_in_the_page_cache(tmp_path: Path) -> None:
    files = acknowledged(tmp_path, syncs=False)
    files.crash(SYNCED_ONLY)
    assert values_left(tmp_path, files) == []


def test_with_fsync_what_is_acknowledged_is_on_the_disk(tmp_path: Path) -> None:
    files = acknowledged(tmp_path, syncs=True)
    files.crash(SYNCED_ONLY)
    assert values_left(tmp_path, files) == VALUES


@pytest.mark.parametrize("seed", range(10))
def test_whatever_else_the_disk_kept(tmp_path: Path, seed: int) -> None:
    files = acknowledged(tmp_path, syncs=True)
    files.crash(RandomLoss(Random(seed)))
    assert values_left(tmp_path, files) == VALUES


def test_the_end_of_the_process_takes_nothing_from_the_page_cache(tmp_path: Path) -> None:
    assert values_left(tmp_path, acknowledged(tmp_path, syncs=False)) == VALUES


@pytest.mark.ottla(topics={"t": 1})
def test_nor_on_a_real_disk(ottla: LocalBroker) -> None:
    ottla.put("t", *VALUES)
    ottla.restart(kill=True)
    assert ottla.values("t") == VALUES
