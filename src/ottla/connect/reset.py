"""Forgetting how far a connector is. Refused while it runs: what it has in hand would come twice, or be lost."""

from __future__ import annotations

from ottla.client import Admin, ServerError
from ottla.connect.configuration import Configuration, ConnectorConfiguration
from ottla.connect.interface import ConnectorRefused, Sink, Task
from ottla.connect.positions import Positions, group_of
from ottla.connect.state import load_states, now_ms

FRESH_MS = 15_000


def reset_connector(configuration: Configuration, connector: ConnectorConfiguration) -> str:
    """What was done."""
    refuse_if_running(configuration, connector.name)
    if connector.is_source:
        count = connector.make().count_tasks(connector.common.tasks)
        positions = Positions(configuration.bootstrap, configuration.client_options, connector.name, count)
        tasks = positions.reset()
        connector.make().forget(connector.name)
        return f"the positions of {len(tasks)} tasks are forgotten" if tasks else "it has no positions"
    with Admin(configuration.bootstrap, configuration.client_options) as admin:
        try:
            admin.delete_groups([group_of(connector.name)])
        except ServerError as error:
            if error.name == "NON_EMPTY_GROUP":
                raise ConnectorRefused("a runner has it: pause it, wait a moment, and reset it then") from None
            if error.name != "GROUP_ID_NOT_FOUND":
                raise
    sink: Sink = connector.make()
    try:
        sink.open(Task(connector.name))
        sink.forget_offsets()
    finally:
        sink.close()
    return "the offsets are forgotten"


def refuse_if_running(configuration: Configuration, name: str) -> None:
    states, _ = load_states(configuration.bootstrap, configuration.client_options)
    for task, status in states.of(name).tasks.items():
        if status.state in ("running", "stopping", "waiting") and abs(now_ms() - status.time_ms) < FRESH_MS:
            raise ConnectorRefused(
                f"task {task} is {status.state} in runner {status.runner}: pause it first, or end the runners"
            )
