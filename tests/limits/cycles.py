"""What requests leave behind that only the garbage collector could free: `python -m tests.limits.cycles [API...]`.

A broker puts aside for good what has stayed for a while (broker/loop/collector.py), and a cycle that was alive at that
moment is never looked at again. So no request may leave one. Here a broker runs without a collector and is asked for
the worst of each API; then it is looked what there is to collect. What is found is printed, a line an API.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import ottla.testing
from ottla.wire.messages.api_versions import ApiVersionsRequest
from tests.limits import worst
from tests.limits.world import Load, World

TINY = Load(topics=20, partitions=120, groups=10, elements=200)  # more than is done in one step, of everything
FOLLOWING_ROUNDS = 20
FOLLOWING_SECONDS = 0.1  # in which the store and the coordinators do what followed from it


class NearWorld(World):
    """Its broker runs in this process."""

    def _start(self) -> tuple[str, int]:
        broker = self._stack.enter_context(ottla.testing.broker())
        return broker.host, broker.port

    def longest_round(self) -> float:
        """Nobody asks for that here."""
        return 0.0


@contextmanager
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what there is already need not be looked at each time
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
        gc.unfreeze()


def left_behind() -> Counter[str]:
    """How many objects of each kind of ours are there to collect; they are gone then."""
    gc.collect()
    names = [f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage]
    names += [f"{each.__module__}.{each.__qualname__}" for each in gc.garbage if isinstance(each, type(left_behind))]
    found = Counter(name for name in names if name.startswith("ottla."))
    gc.set_debug(0)
    gc.garbage.clear()
    gc.collect()
    gc.set_debug(gc.DEBUG_SAVEALL)
    return found


def cycles(apis: Collection[str]) -> Iterator[tuple[str, Counter[str]]]:
    with NearWorld(TINY) as world:
        world.fill()
        with no_collector():
            for api in apis:
                for ask in worst.WORST[api](world):
                    world.ask(*ask)
                for _ in range(FOLLOWING_ROUNDS):
                    world.ask(ApiVersionsRequest())
                time.sleep(FOLLOWING_SECONDS)
                yield api, left_behind()


if __name__ == "__main__":
    worst.BOMB_BYTES = worst.LARGE_BATCH_BYTES = worst.MEGABYTE // 4  # that they are large is not what counts here
    for name, found in cycles(sys.argv[1:] or worst.WORST):
        if found:
            print(f"{name} leaves {found.total()}: {dict(found.most_common(10))}", flush=True)
