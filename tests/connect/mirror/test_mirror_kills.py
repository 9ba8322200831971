"""Runners of a mirror as real processes, killed in the middle, from Ottla to Ottla."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import testing
from tests.connect.mirror.kills_contract import MirrorKillsContract


@pytest.fixture
def source() -> Iterator[str]:
    with testing.broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def target() -> Iterator[str]:
    with testing.broker() as broker:
        yield broker.bootstrap


class TestMirrorKills(MirrorKillsContract):
    kills = 4
    session_timeout_ms = 1_500
