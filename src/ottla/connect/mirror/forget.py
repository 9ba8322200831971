"""Forgetting one topic of a mirror: it is copied from the beginning then, and the others go on where they are."""

from __future__ import annotations

from ottla.connect.configuration import Configuration, ConnectorConfiguration
from ottla.connect.interface import ConnectorRefused
from ottla.connect.mirror.origins import Origins
from ottla.connect.mirror.progress import Progress
from ottla.connect.positions import Positions
from ottla.connect.reset import refuse_if_running


def forget_topic(configuration: Configuration, connector: ConnectorConfiguration, topic: str) -> str:
    """What was done. Refused while the mirror runs."""
    refuse_if_running(configuration, connector.name)
    count = connector.common.tasks
    bootstrap, options = configuration.bootstrap, configuration.client_options
    positions = Positions(bootstrap, options, connector.name, count)
    targets = set()
    for task in range(count):
        position = positions.read_own(task)
        if position is None:
            continue
        progress = Progress.read(position)
        forgotten = progress.topics.pop(topic, None)
        if forgotten is not None:
            targets.add(forgotten.target)
            positions.reset(progress.document(), only_task=task)
    if not targets:
        raise ConnectorRefused(f"the mirror {connector.name} has not copied a topic {topic}")
    Origins(bootstrap, options).write(dict.fromkeys(targets))
    return f"{topic} is forgotten: delete {', '.join(sorted(targets))} on the target before it is copied again"
