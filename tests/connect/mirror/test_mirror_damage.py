"""A batch that has rotted on the source, with Ottla as the target."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ottla import testing
from tests.connect.mirror.damage_contract import MirrorDamageContract


class TestMirrorDamage(MirrorDamageContract):
    @pytest.fixture
    def target(self) -> Iterator[str]:
        with testing.broker() as broker:
            yield broker.bootstrap
