"""For all tests: no example has a deadline, since a slow machine is no wrong result, and Ctrl-C works."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.light_java import LIGHT_JAVA

settings.register_profile("ottla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ottla")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in the background of a shell, and processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.setdefault("SPARK_SUBMIT_OPTS", LIGHT_JAVA)  # a driver of Spark starts with half the CPU


# What takes longest, in the order in which it begins: what begins last keeps the other workers waiting.
LONGEST_GROUPS = ("spark", "spark processes", "demos", "apache_kafka", "mariadb")
LONG_FOLDERS = {
    Path(__file__).parent / name
    for name in ("chaos", "checker", "client_sim", "cluster", "compat", "growing", "pipelines", "sim", "soak", "storm")
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Groups first, whatever the order is otherwise; xdist keeps to it with --no-loadscope-reorder."""
    items.sort(key=_when_it_begins)


def _when_it_begins(item: pytest.Item) -> int:
    mark = item.get_closest_marker("xdist_group")
    if mark is not None and mark.args[0] in LONGEST_GROUPS:
        return LONGEST_GROUPS.index(mark.args[0])
    is_long = mark is not None or not LONG_FOLDERS.isdisjoint(item.path.parents)
    return len(LONGEST_GROUPS) + (0 if is_long else 1)
