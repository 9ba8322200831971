"""For all tests: no example has a deadline, since a slow machine is no wrong result, and Ctrl-C works."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.light_java import LIGHT_JAVA

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell, and processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", LIGHT_JAVA)  # a driver of Spark starts with half the CPU


# The groups that take longest, in the order in which they begin: what begins last keeps the other workers waiting.
LONGEST_GROUPS = ("spark", "spark processes", "demos", "apache_kafka", "mariadb")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups first, whatever the order is otherwise."""
    items.sort(key=_when_it_begins)


def _when_it_begins(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    if mark is None:
        return len(LONGEST_GROUPS) + 1
    return LONGEST_GROUPS.index(mark.args[0]) if mark.args[0] in LONGEST_GROUPS else len(LONGEST_GROUPS)
