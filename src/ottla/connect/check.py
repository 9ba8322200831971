"""What would go wrong with a connector, found before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.client import Admin, ClientError
from ottla.connect.configuration import Configuration, ConnectorConfiguration
from ottla.connect.interface import Finding, Sink


def check_connector(configuration: Configuration, connector: ConnectorConfiguration) -> Iterator[Finding]:
    yield from _check_cluster(configuration, connector)
    try:
        made = connector.make()
        yield from made.check()
    except Exception as error:  # a connector may raise anything
        yield Finding(str(error).splitlines()[0] if str(error) else type(error).__name__, is_problem=True)
        return
    if isinstance(made, Sink) and not made.stores_offsets:
        yield Finding("it stores no offsets with its results: after a crash some records may come again")


def _check_cluster(configuration: Configuration, connector: ConnectorConfiguration) -> Iterator[Finding]:
    common = connector.common
    try:
        with Admin(configuration.bootstrap, configuration.client_options._replace(retry_timeout_ms=5_000)) as admin:
            topics = {topic.name for topic in admin.list_topics()}
    except ClientError as error:
        yield Finding(f"the cluster {configuration.bootstrap} cannot be reached: {error}", is_problem=True)
        return
    yield Finding(f"the cluster {configuration.bootstrap} answers")
    for topic in common.topics:
        if topic not in topics:
            yield Finding(f"there is no topic {topic}", is_problem=True)
    if common.dead_letter is not None and common.dead_letter not in topics:
        yield Finding(f"there is no topic {common.dead_letter} for dead letters: create it", is_problem=True)
