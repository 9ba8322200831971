"""Several brokers, each a process of its own, on one store."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.apache_kafka.harness import free_ports
from tests.child_processes import die_with_parent

QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
}
START_SECONDS = 120


class BrokerProcess:
    """`ottla serve` with two data folders. It keeps its address and its data when it is started again."""

    def __init__(
        self,
        folder: Path,
        store: str,
        node_id: int,
        address: tuple[str, int],
        settings: Mapping[str, str],
        *,
        output: Path | None = None,
        prefix: Sequence[str] = (),
        program: Sequence[str] = ("ottla",),
        log_level: str = "warning",
    ) -> None:
        """`output`: where it complains. `prefix`: what starts its command. `program`: what runs in Ottla's place."""
        self.node_id = node_id
        self.address = address
        self.output = output or folder / f"{node_id}.txt"
        self.data_folders = [folder / f"{node_id}-{name}" for name in ("data", "more")]
        own = {"log.dirs": ",".join(map(str, self.data_folders)), **QUICK, **settings}
        self._command = [*prefix, sys.executable, "-m", *program, "serve", "--store", store]
        self._command += ["--id", str(node_id), "--listen", f"{address[0]}:{address[1]}", "--log-level", log_level]
        for name, text in own.items():
            self._command += ["--set", f"{name}={text}"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process_id(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def begin(self) -> None:
        with open(self.output, "ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=output, bufsize=0, preexec_fn=die_with_parent
            )

    def await_start(self) -> None:
        if not self.starts_within(START_SECONDS):
            raise RuntimeError(f"broker {self.node_id} did not start:\n{self.output.read_text()}")

    def starts_within(self, seconds: float) -> bool:
        """To be asked until it is so: it says once that it serves."""
        assert self._process is not None
        assert self._process.stdout is not None
        poll = select.poll()  # it takes any number of a file, where select ends at 1,023
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(seconds * 1000) and self._process.stdout.readline())

    def start(self) -> None:
        self.begin()
        self.await_start()

    def hold(self) -> None:
        """It does nothing until `let_go`."""
        self.send_signal(signal.SIGSTOP)

    def let_go(self) -> None:
        self.send_signal(signal.SIGCONT)

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def stop(self) -> None:
        """In good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, with_signal: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(with_signal)
            process.wait(START_SECONDS)
            if process.stdout is not None:
                process.stdout.close()


class Cluster:
    """A context manager: it runs inside the `with`."""

    def __init__(
        self,
        folder: Path,
        count: int = 3,
        settings: Mapping[str, str] | None = None,
        *,
        store: str | None = None,
    ) -> None:
        """`store`: a file in the folder, if nothing is said."""
        ports = free_ports(count)
        store = store or f"local:{folder}/cluster.sqlite"
        self.brokers = {
            node_id: BrokerProcess(folder, store, node_id, ("127.0.0.1", ports[node_id - 1]), settings or {})
            for node_id in range(1, count + 1)
        }

    @property
    def addresses(self) -> dict[int, tuple[str, int]]:
        return {node_id: broker.address for node_id, broker in self.brokers.items()}

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses.values())

    def __enter__(self) -> Self:
        """The first is the controller, and knows all that come behind it."""
        try:
            self.brokers[1].start()
            for broker in list(self.brokers.values())[1:]:
                broker.begin()
            for broker in list(self.brokers.values())[1:]:
                broker.await_start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            broker.kill()
