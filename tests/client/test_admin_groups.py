"""Groups as an administrator sees them, of Ottla's own broker."""

from collections.abc import Iterator

import pytest

import ottla.testing
from tests.client.admin_groups_contract import AdminGroupsContract


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ottla.testing.broker() as broker:
        yield broker.bootstrap


class TestOnOttla(AdminGroupsContract):
    pass
