"""What `ottla cluster up` does: a process for each broker, started, watched and stopped."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import IO, NamedTuple

from ottla.cli.errors import FAILED, CommandFailed
from ottla.cli.output import say
from ottla.cli.signals import STOP_SIGNALS, call_on_stop_signals
from ottla.cli.table import counted

STORE = "cluster.sqlite"
STOP_SECONDS = 30.0  # after which a broker that does not stop is killed
RESTART_SECONDS = 1.0  # between the end of a broker and its next start
SERVES_ON = " serves on "
MOST_REPLICAS = 3


class _Line(NamedTuple):
    node_id: int
    text: str


class _Ended(NamedTuple):
    node_id: int
    process: subprocess.Popen[str]


class _Stop(NamedTuple):
    """Somebody wants an end."""


class _StartAgain(NamedTuple):
    node_id: int


_News = _Line | _Ended | _Stop | _StartAgain


def up(options: argparse.Namespace) -> int:
    cluster = _Cluster(options)
    call_on_stop_signals(lambda: cluster.news.put(_Stop()))
    try:
        return cluster.run()
    finally:
        cluster.stop()


class _Cluster:
    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._folder = Path(options.data)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._processes: dict[int, subprocess.Popen[str]] = {}
        self._addresses: dict[int, str] = {}
        self.news: SimpleQueue[_News] = SimpleQueue()

    def run(self) -> int:
        """Until somebody wants an end, or no broker is left."""
        count = self._options.brokers
        for node_id in range(1, count + 1):
            self._start(node_id)
        is_up = False
        while self._processes or self._options.restart:
            match self.news.get():
                case _Line(node_id, text):
                    self._heard(node_id, text)
                    if not is_up and len(self._addresses) == count:
                        is_up = True
                        addresses = ",".join(self._addresses[each] for each in sorted(self._addresses))
                        say(f"{counted(count, 'broker')} {'is' if count == 1 else 'are'} up: --bootstrap {addresses}")
                case _Ended(node_id, process):
                    self._ended(node_id, process, is_up=is_up)
                case _StartAgain(node_id):
                    self._start(node_id)
                case _Stop():
                    return 0
        return FAILED

    def _heard(self, node_id: int, text: str) -> None:
        say(f"broker {node_id} | {text}")
        if SERVES_ON in text:
            self._addresses[node_id] = text.partition(SERVES_ON)[2].partition(",")[0]

    def _ended(self, node_id: int, process: subprocess.Popen[str], *, is_up: bool) -> None:
        if self._processes.pop(node_id, None) is not process:
            return
        code = process.returncode
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        if not is_up:
            raise CommandFailed(f"broker {node_id} {how} before all were up; the others are stopped")
        if self._options.restart:
            say(f"broker {node_id} {how}, and is started again")
            again = threading.Timer(RESTART_SECONDS, self.news.put, [_StartAgain(node_id)])
            again.daemon = True
            again.start()
        else:
            say(f"broker {node_id} {how}; start it again with: ottla {' '.join(self._arguments(node_id))}")

    def _start(self, node_id: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *self._arguments(node_id)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            start_new_session=True,  # Ctrl-C is for this process, which stops them in turn
            preexec_fn=_stop_with_parent,
        )
        self._processes[node_id] = process
        say(f"broker {node_id} is process {process.pid}")
        assert process.stdout is not None
        threading.Thread(target=self._read, args=(node_id, process, process.stdout), daemon=True).start()

    def _read(self, node_id: int, process: subprocess.Popen[str], output: IO[str]) -> None:
        with output:
            for line in output:
                self.news.put(_Line(node_id, line.rstrip("\n")))
        process.wait()
        self.news.put(_Ended(node_id, process))

    def _arguments(self, node_id: int) -> list[str]:
        options = self._options
        # A broker that comes back has the address that the others and the clients know.
        address = self._addresses.get(node_id, f"127.0.0.1:{options.port + node_id - 1 if options.port else 0}")
        replicas = min(options.brokers, MOST_REPLICAS)
        settings = {
            "default.replication.factor": replicas,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
            "transaction.state.log.min.isr": max(1, replicas - 1),
        }
        arguments = ["serve", "--store", f"local:{self._folder / STORE}", "--id", str(node_id), "--listen", address]
        arguments += ["--data", str(self._folder / f"broker-{node_id}"), "--log-level", options.log_level]
        for text in (*(f"{name}={value}" for name, value in settings.items()), *options.set):
            arguments += ["--set", text]
        return arguments

    def stop(self) -> None:
        """One after the other, so that each can hand over what it leads; the last ones have nobody to give it to."""
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for node_id in sorted(self._processes, reverse=True):
            process = self._processes[node_id]
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                say(f"broker {node_id} does not stop, and is killed")
                process.kill()
                process.wait()


def _stop_with_parent() -> None:
    """A broker does not go on alone where this process is killed."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    if os.getppid() == 1:
        os.kill(os.getpid(), signal.SIGTERM)
