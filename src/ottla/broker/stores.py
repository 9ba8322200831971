"""The stores that brokers can share: `local:PATH`, a file on one machine, and `zookeeper://HOST:PORT/CHROOT`."""

from __future__ import annotations

import os
from collections.abc import Callable

from ottla.broker.loop.loop import Loop
from ottla.config import ConfigError
from ottla.controller.local_store import LocalStore
from ottla.controller.sqlite_nodes import SqliteNodes
from ottla.controller.store import Store

LOOK_SECONDS = 0.1  # in which each has a look at what others did in the file
LOCAL = "local:"
ZOOKEEPER = "zookeeper://"

STORE = "cluster.sqlite"  # of a broker that shares it with nobody, in its data folder

OpenStore = Callable[[Loop], Store]


def own_store(folder: str, *, survives_power_loss: bool = True) -> OpenStore:
    """What opens the store of a broker that is alone, in its data folder."""
    path = f"{folder}/{STORE}"
    return lambda loop: LocalStore(
        lambda: SqliteNodes(path, survives_power_loss=survives_power_loss, is_alone=True),
        loop.make_worker("ottla-store"),
    )


def shared_store(text: str, *, session_seconds: float, survives_power_loss: bool = True) -> OpenStore:
    """What opens the store of a name; ConfigError with a sentence where there is no such store to be had.

    `session_seconds`: how long a broker that is silent keeps what lives as long as it does.
    """
    if text.startswith(LOCAL) and len(text) > len(LOCAL):
        return _local(text.removeprefix(LOCAL), session_seconds, survives_power_loss)
    if text.startswith(ZOOKEEPER):
        return _zookeeper(text, session_seconds)
    raise ConfigError(f"{text!r} is no store; write local:PATH or zookeeper://HOST:PORT,HOST:PORT/CHROOT")


def _local(path: str, session_seconds: float, survives_power_loss: bool) -> OpenStore:
    def nodes() -> SqliteNodes:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        return SqliteNodes(path, survives_power_loss=survives_power_loss, session_timeout_seconds=session_seconds)

    def open_store(loop: Loop) -> Store:
        store = LocalStore(nodes, loop.make_worker("ottla-store"))
        # A silent process is found out by the others, so each gives signs of life, several in a session.
        store.keep_looking(min(LOOK_SECONDS, session_seconds / 4), loop.call_later)
        return store

    return open_store


def _zookeeper(text: str, session_seconds: float) -> OpenStore:
    from ottla.controller.zookeeper.address import parse_zookeeper_address

    try:
        address = parse_zookeeper_address(text)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    try:
        from ottla.controller.zookeeper.store import ZookeeperStore
    except ModuleNotFoundError:
        raise ConfigError('a store in ZooKeeper needs its client: pip install "ottla[zookeeper]"') from None

    def open_store(loop: Loop) -> Store:
        worker = loop.make_worker("ottla-store")
        return ZookeeperStore(address, worker, loop.post, session_timeout_seconds=session_seconds)

    return open_store
