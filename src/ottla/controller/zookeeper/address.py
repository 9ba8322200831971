"""Where a cluster's ZooKeeper is: `zookeeper://host:port,host:port/chroot`."""

from __future__ import annotations

from typing import NamedTuple

from ottla.controller.store import OPERATION_BYTES

DEFAULT_PORT = 2181
SCHEME = "zookeeper://"
MAX_REQUEST_BYTES = 1_000_000  # a server refuses from 1 MiB on (its jute.maxbuffer), and there is a header


class ZookeeperAddress(NamedTuple):
    hosts: str  # host:port, host:port, ...
    chroot: str = ""  # the node that the cluster lies below

    @property
    def max_commit_bytes(self) -> int:
        """As `size_of` counts them, which does not know that each path has the chroot before it."""
        return MAX_REQUEST_BYTES * OPERATION_BYTES // (OPERATION_BYTES + len(self.chroot))


def parse_zookeeper_address(text: str) -> ZookeeperAddress:
    """ValueError with a sentence where it is none."""
    hosts, slash, below = text.removeprefix(SCHEME).partition("/")
    parts = below.rstrip("/").split("/") if slash and below.rstrip("/") else []
    if any(not part or part in (".", "..") or "\0" in part for part in parts):
        raise ValueError(f"{text!r}: /{below} is not the path of a node of ZooKeeper")
    return ZookeeperAddress(",".join(_host(part, text) for part in hosts.split(",")), "".join(f"/{p}" for p in parts))


def _host(part: str, text: str) -> str:
    host, colon, port = part.strip().rpartition(":") if not part.strip().endswith("]") else (part.strip(), "", "")
    if not colon:
        host, port = (host or port), str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"{text!r} names no server; write {SCHEME}HOST:PORT,HOST:PORT/CHROOT")
    return f"{host}:{port}"
