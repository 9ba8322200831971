"""A real broker inside the process of a test, on a thread of its own, with data that goes when it goes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from ottla.broker.broker import Broker
from ottla.broker.config_layers import BrokerSettings
from ottla.broker.listeners import Endpoint, plaintext
from ottla.broker.loop import Loop
from ottla.log.files import DiskFiles


class RunningBroker(NamedTuple):
    host: str
    port: int
    folder: str
    endpoints: dict[str, Endpoint]  # by the name of each listener

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"


@contextmanager
def running_broker(
    folder: str | None = None,
    *,
    port: int = 0,
    syncs: bool = False,
    settings: Mapping[str, str] | None = None,
) -> Iterator[RunningBroker]:
    """A broker that listens on loopback; without a folder its data is in one that is removed at the end."""
    with ExitStack() as stack:
        if folder is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-broker-"))
        loop = Loop()
        stack.callback(loop.close)
        all_settings = BrokerSettings({"listeners": plaintext("127.0.0.1", port)} | dict(settings or {}))
        broker = Broker(loop, DiskFiles(), folder, all_settings, syncs=syncs)
        stack.callback(broker.stop)
        broker.start()
        thread = threading.Thread(target=loop.run, name="ottla-broker", daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(loop.post, loop.stop)
        yield RunningBroker(*broker.address, folder, broker.endpoints)
