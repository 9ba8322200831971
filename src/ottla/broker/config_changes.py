"""Changes of configurations: each resource alone is checked, and changed in the store and in what runs.

Topics, brokers and groups can be changed. Loggers and client metrics have no configuration here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.broker.catalog import storage_refusal
from ottla.broker.config_dynamic import ONE_BROKER_ONLY, is_dynamic
from ottla.broker.config_layers import broker_settings
from ottla.broker.group_configs import GROUP_SETTINGS
from ottla.config import ConfigError, resolve, text_of
from ottla.controller.configs import Asked, Change, ResourceType, changed, check_asked
from ottla.controller.refusal import Refusal
from ottla.controller.store import StoreUnusable
from ottla.controller.topic_names import check_name
from ottla.controller.topics import check_configs
from ottla.log.topic_config import TOPIC_SETTINGS
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

MIN_INSYNC_REPLICAS = "min.insync.replicas"


class ResourceChange(NamedTuple):
    """What is asked of one resource; `replaces` drops all that is set and not asked for."""

    kind: int
    name: str
    asked: Sequence[Asked]
    replaces: bool = False


def change_configs(
    broker: Broker, changes: Sequence[ResourceChange], *, validate_only: bool
) -> Generator[None, None, list[Refusal | None]]:
    """What became of each change, in their order and one a step; None where it was made."""
    named = Counter((change.kind, change.name) for change in changes)
    outcomes: list[Refusal | None] = []
    for change in changes:
        outcome = None
        try:
            if named[change.kind, change.name] > 1:
                raise Refusal(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")  # noqa: TRY301
            make = _checked(broker, change)
        except Refusal as refusal:
            outcome = refusal
        else:
            if not validate_only:
                outcome = _made(make)
        outcomes.append(outcome)
        yield
    return outcomes


def _made(make: Callable[[], None]) -> Refusal | None:
    try:
        make()
    except StoreUnusable as error:
        return storage_refusal(error)
    except Refusal as refusal:
        return refusal
    return None


def _checked(broker: Broker, change: ResourceChange) -> Callable[[], None]:
    """What makes a change that was found good."""
    check_asked(change.asked)
    match change.kind:
        case ResourceType.TOPIC:
            return _checked_topic(broker, change)
        case ResourceType.BROKER:
            return _checked_broker(broker, change)
        case ResourceType.GROUP:
            return _checked_group(broker, change)
    raise Refusal(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.kind}")


def _checked_topic(broker: Broker, change: ResourceChange) -> Callable[[], None]:
    name = change.name
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    topic = broker.topics.by_name.get(name)
    if topic is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    defaults = broker.settings.topic_defaults
    before = {} if change.replaces else topic.overrides
    texts = changed(before, change.asked, TOPIC_SETTINGS, lambda key: defaults.effective(key, {})[0] or "")
    check_configs(defaults, dict(texts))
    return lambda: broker.catalog.set_topic_configs({name: texts})


def _checked_group(broker: Broker, change: ResourceChange) -> Callable[[], None]:
    name, configs = change.name, broker.group_configs
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    before = {} if change.replaces else configs.by_group.get(name, {})
    texts = changed(before, change.asked, GROUP_SETTINGS, lambda _key: "")
    try:
        configs.check(texts)
    except ConfigError as error:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from error
    return lambda: configs.replace(name, texts)


def _checked_broker(broker: Broker, change: ResourceChange) -> Callable[[], None]:
    settings = broker.settings
    node_id = _node_id(broker, change.name)
    before = settings.of_cluster if node_id is None else settings.of_broker
    _check_changeable(change, node_id, before)
    definitions = broker_settings()
    texts = changed(
        {} if change.replaces else before,
        change.asked,
        definitions,
        lambda key: text_of(resolve(definitions[key], settings.layers)[0]) or "",
    )
    try:
        if node_id is None:
            settings.check_dynamic(texts, settings.of_broker)
        else:
            settings.check_dynamic(settings.of_cluster, texts)
    except ConfigError as error:
        raise Refusal(ErrorCode.INVALID_REQUEST, str(error)) from error
    return lambda: broker.catalog.set_broker_configs(node_id, texts)


def _node_id(broker: Broker, name: str) -> int | None:
    """The broker that a name stands for; None for all of them."""
    if not name:
        return None
    try:
        node_id = int(name)
    except ValueError:
        message = f"Node id must be an integer, but it is: {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message) from None
    if node_id != broker.node_id:
        message = f"Unexpected broker id, expected {broker.node_id}, but received {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    return node_id


def _check_changeable(change: ResourceChange, node_id: int | None, before: dict[str, str]) -> None:
    names = [asked.name for asked in change.asked]
    fixed = [name for name in names if not is_dynamic(name)]
    if fixed:
        message = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if node_id is None:
        alone = [name for name in names if name in ONE_BROKER_ONLY]
        if alone:
            raise Refusal(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(alone)}]",
            )
        kept = {asked.name for asked in change.asked if asked.operation != Change.DELETE}
        deleted = {asked.name for asked in change.asked if asked.operation == Change.DELETE}
        removed = set(before) - kept if change.replaces else deleted
        if MIN_INSYNC_REPLICAS in removed:
            message = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise Refusal(ErrorCode.INVALID_CONFIG, message)
    elif MIN_INSYNC_REPLICAS in names:
        message = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
