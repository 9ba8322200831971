"""A broker that goes to others through proxies: `python -m tests.chaos.proxied_broker ROUTES MISTAKE serve ...`.

ROUTES: `HOST=PROXY,...`. MISTAKE: one of `broken_broker`, or `none`.
"""

from __future__ import annotations

import contextlib
import sys
from unittest import mock

from ottla.broker.loop.system import LinuxSystem, Socket
from ottla.cli.main import main
from tests.chaos.broken_broker import MISTAKES

NONE = "none"


def routed(text: str) -> contextlib.AbstractContextManager[object]:
    routes = dict(route.split("=") for route in text.split(","))
    connect = LinuxSystem.connect

    def connect_to_proxy(system: LinuxSystem, address: str, port: int) -> Socket:
        return connect(system, routes.get(address, address), port)

    return mock.patch.object(LinuxSystem, "connect", connect_to_proxy)


if __name__ == "__main__":
    routes, mistake, *arguments = sys.argv[1:]
    planted = contextlib.nullcontext() if mistake == NONE else MISTAKES[mistake]()
    with routed(routes), planted:
        sys.exit(main(arguments))
