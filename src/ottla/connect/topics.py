"""The topics that connectors need: made if they are not there; and what their names are made of."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.client import Admin, ClientOptions, NewTopic, ServerError

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")

# Small segments, cleaned soon: what is read at a start stays short.
COMPACTED: dict[str, str] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.bytes": str(16 << 20),
}


def is_topic_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None and name not in (".", "..")


def check_topic_name(setting: str, name: str) -> None:
    """ValueError, in words, where a setting holds no name for a topic."""
    if not is_topic_name(name):
        raise ValueError(
            f"{setting}: {name!r} is no name for a topic, which is made of up to 249 letters of ASCII, digits, dots, "
            "dashes and underscores"
        )


def ensure_topic(
    bootstrap: str, options: ClientOptions, name: str, *, partitions: int = -1, configs: Mapping[str, str] | None = None
) -> None:
    """Makes the topic, or gives it more partitions if it has too few. Others may do the same at the same time."""
    with Admin(bootstrap, options) as admin:
        try:
            topic = admin.describe_topics([name])[0]
        except ServerError as missing:
            if missing.name != "UNKNOWN_TOPIC_OR_PARTITION":
                raise
            try:
                admin.create_topics([NewTopic(name, partitions, configs=configs or {})])
            except ServerError as error:
                if error.name != "TOPIC_ALREADY_EXISTS":
                    raise
            return
        if len(topic.partitions) < partitions:
            try:
                admin.expand_topics({name: partitions})
            except ServerError as error:
                if error.name != "INVALID_PARTITIONS":  # another runner was first
                    raise


def topic_exists(bootstrap: str, options: ClientOptions, name: str) -> bool:
    with Admin(bootstrap, options) as admin:
        try:
            admin.describe_topics([name])
        except ServerError as error:
            if error.name == "UNKNOWN_TOPIC_OR_PARTITION":
                return False
            raise
    return True
