"""A process that runs the connectors of a file, as far as others do not run them."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence

from ottla.client import ClientError
from ottla.connect.configuration import Configuration, ConnectorConfiguration
from ottla.connect.state import StateFollower, TaskStatus
from ottla.connect.supervisor import RETRY_SECONDS, STOP_SECONDS, Supervisor


def _nobody(connector: str, task: str, status: TaskStatus) -> None:
    """Hears nothing."""


class Runner:
    """Start as many as you like, on as many machines: they share the tasks through a consumer group a connector."""

    def __init__(
        self, configuration: Configuration, connectors: Sequence[ConnectorConfiguration] | None = None, *,
        name: str | None = None, tell: Callable[[str, str, TaskStatus], None] = _nobody,
    ) -> None:  # fmt: skip
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._states = StateFollower(configuration.bootstrap, configuration.client_options)
        chosen = configuration.chosen(None) if connectors is None else connectors
        self.supervisors = [Supervisor(configuration, connector, self._states, self.name, tell) for connector in chosen]
        self._threads: list[threading.Thread] = []
        self.stopping = threading.Event()
        """Set it, and `start` waits no longer."""

    def start(self) -> None:
        """A cluster that is not there yet is waited for, and told meanwhile, as connectors do with databases."""
        while not self._open_states():
            if self.stopping.wait(RETRY_SECONDS):
                return
        for supervisor in self.supervisors:
            thread = threading.Thread(target=supervisor.run, name=f"connect-{supervisor.connector.name}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _open_states(self) -> bool:
        """Whether the cluster is there. An error that would be the same the next time is raised."""
        try:
            self._states.open()
        except ClientError as error:
            if not error.is_retriable:
                raise
            for supervisor in self.supervisors:
                supervisor.tell_trouble(error)
            return False
        return True

    def stop(self) -> None:
        """Ends what runs, waits for it, and gives it to others."""
        for supervisor in self.supervisors:
            supervisor.stop()
        for thread in self._threads:
            thread.join(2 * STOP_SECONDS)
        self._states.close()

    def __enter__(self) -> Runner:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
