"""Machines of their own on one machine: network namespaces behind a router, whose links can be cut.

A packet between two machines that are cut off from each other is dropped, and nobody is told: connections stay half
open, and new ones are not refused. That takes Linux and the right to make namespaces, which most users have.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import NamedTuple

INSIDE = "OTTLA_CHAOS_INSIDE"
UNSHARE = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
AS_ROOT = ("--user", "--map-root-user")
MAKE_A_LINK = "ip link add m1 type veth peer name m2 && ip rule add from 10.7.1.2 blackhole && nsenter --help"
CUTS = 10  # the place of these rules, before that of local addresses
LOCAL = 100
READY = b"."
_HOLD = "import sys, time; sys.stdout.write('.'); sys.stdout.flush(); time.sleep(1e6)"


def _isolating() -> tuple[str, ...]:
    return UNSHARE if os.geteuid() == 0 else (*UNSHARE, *AS_ROOT)


def missing() -> str | None:
    """Why there can be no such network; None where there can."""
    if sys.platform != "linux":
        return "machines of their own on one machine take Linux"
    try:
        tried = subprocess.run([*_isolating(), "sh", "-c", MAKE_A_LINK], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        return f"no {error.filename} here"
    return f"no network of its own here: {tried.stderr.strip()}" if tried.returncode else None


def go_inside(module: str, arguments: list[str]) -> None:
    """Run a module again where network, mounts and processes are its own. All of it ends with the program."""
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        command = [*_isolating(), sys.executable, "-m", module, *arguments]
        os.execvp(command[0], command)


class Machine(NamedTuple):
    """`prefix`: what starts the command of a program that is to run there."""

    host: str
    router_host: str  # from where the programs outside of all machines reach it
    prefix: tuple[str, ...]


class Network:
    """A context manager: its machines are there inside the `with`."""

    def __init__(self) -> None:
        self._holders: list[subprocess.Popen[bytes]] = []
        self._cuts: set[tuple[str, str]] = set()

    def __enter__(self) -> Network:
        _run("ip", "link", "set", "lo", "up")
        with open("/proc/sys/net/ipv4/ip_forward", "w") as file:
            file.write("1")
        # So that rules count for what the router itself is sent, too.
        _run("ip", "rule", "add", "pref", str(LOCAL), "table", "local")
        _run("ip", "rule", "del", "pref", "0")
        return self

    def __exit__(self, *_: object) -> None:
        for holder in self._holders:
            holder.kill()
            holder.wait()
            assert holder.stdout is not None
            holder.stdout.close()

    def add_machine(self) -> Machine:
        number = len(self._holders) + 1
        command = ["unshare", "--net", sys.executable, "-c", _HOLD]
        holder = subprocess.Popen(command, stdout=subprocess.PIPE)
        self._holders.append(holder)
        assert holder.stdout is not None
        if holder.stdout.read(len(READY)) != READY:
            raise RuntimeError("a network namespace could not be made")
        prefix = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        host, router = f"10.7.{number}.2", f"10.7.{number}.1"
        _run("ip", "link", "add", f"m{number}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _run("ip", "address", "add", f"{router}/24", "dev", f"m{number}")
        _run("ip", "link", "set", f"m{number}", "up")
        _run(*prefix, "ip", "link", "set", "lo", "up")
        _run(*prefix, "ip", "address", "add", f"{host}/24", "dev", "eth0")
        _run(*prefix, "ip", "link", "set", "eth0", "up")
        _run(*prefix, "ip", "route", "add", "default", "via", router)
        return Machine(host, router, prefix)

    def reach(self, sender: Machine | None, receiver: Machine, port: int) -> str:
        """The host at which one machine, or whoever is outside of all, finds a port of another."""
        return receiver.host

    def cut(self, sender: str, receiver: str) -> None:
        """What one host sends to another is lost from now on."""
        if (sender, receiver) not in self._cuts:
            self._cuts.add((sender, receiver))
            _run("ip", "rule", "add", "pref", str(CUTS), "from", sender, "to", receiver, "blackhole")

    def mend(self, sender: str, receiver: str) -> None:
        if (sender, receiver) in self._cuts:
            self._cuts.remove((sender, receiver))
            _run("ip", "rule", "del", "pref", str(CUTS), "from", sender, "to", receiver, "blackhole")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
