"""The short form of `kills`: each of the processes is killed once while changes flow."""

from __future__ import annotations

import random
from pathlib import Path

from tests.pipelines.tables.kills import storm


def test_tables_equal_their_source_after_kills_of_everything(tmp_path: Path) -> None:
    victims = ["worker", "shop", "broker", "driver"]
    random.Random(3).shuffle(victims)
    run = storm(tmp_path, victims, rate=100, seed=3)
    assert sorted(what for _, what in run.kills) == sorted(victims)
