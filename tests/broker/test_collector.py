"""The collector looks at few objects at a time, and connections and requests leave it nothing to find."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
import time

from ottla.broker.network.connection import Connection
from ottla.testing import LocalBroker

GROWING = """
import gc
from ottla.broker.loop.collector import Collector

Collector()
most = 0

def look(phase, info):
    global most
    if phase == "start" and info["generation"] == 2:
        most = max(most, sum(len(gc.get_objects(generation)) for generation in range(3)))

gc.callbacks.append(look)
kept = [[] for _ in range(1_000_000)]
gc.collect()
print(most, gc.get_freeze_count())
"""


def test_what_stays_is_looked_at_a_few_times_however_much_there_is() -> None:
    run = subprocess.run([sys.executable, "-c", GROWING], capture_output=True, text=True, check=True, timeout=60)
    most, frozen = map(int, run.stdout.split())
    assert most < 40_000
    assert frozen > 1_000_000


REPLACING = """
import gc
from ottla.broker.loop.collector import Collector
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.system import LinuxSystem

kept = [[] for _ in range(1_000_000)]
loop = Loop(LinuxSystem())
loop.set_collector(Collector())
most = 0

def look(phase, info):
    global most
    if phase == "start":
        most = max(most, sum(len(gc.get_objects(generation)) for generation in range(3)))

def replace(first):
    for index in range(first, first + 100):
        kept[index] = []
    if first + 100 < len(kept):
        loop.call_soon(lambda: replace(first + 100))
    else:
        loop.stop()

gc.callbacks.append(look)
loop.call_soon(lambda: replace(0))
loop.run()
gc.collect()
loop.close()
print(most)
"""


def test_objects_that_take_the_place_of_others_are_looked_at_a_few_at_a_time() -> None:
    """There are never more of them than before, and that is what Python goes by."""
    run = subprocess.run([sys.executable, "-c", REPLACING], capture_output=True, text=True, check=True, timeout=60)
    assert int(run.stdout) < 500_000


def test_no_request_leaves_anything_for_the_collector() -> None:
    command = [sys.executable, "-m", "tests.limits.cycles"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=800)
    assert run.stdout == ""


def test_connections_that_are_gone_need_no_collector(ottla: LocalBroker) -> None:
    """For they may have been put aside, and nobody would look at them again."""

    def alive() -> int:
        return sum(type(each) is Connection for each in gc.get_objects())  # isinstance asks dead proxies, too

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        before = alive()
        ottla.topic("t")
        for _ in range(20):
            with socket.create_connection((ottla.host, ottla.port), 10) as connection:
                connection.sendall(bytes([0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 255, 255]))  # ApiVersions
                assert connection.recv(4)
        deadline = time.monotonic() + 30
        while alive() > before:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        if was_enabled:
            gc.enable()
