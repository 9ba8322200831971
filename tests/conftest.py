"""For all tests: no example has a deadline, since a slow machine is no wrong result, and Ctrl-C works."""

import signal

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell, and processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups first, whatever the order is otherwise: one that begins last would keep the other workers waiting."""
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)
