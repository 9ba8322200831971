"""Changes of configurations: each resource alone is checked and decided on, and some of them are changed together.

Topics, brokers and groups can be changed. Loggers and client metrics have no configuration here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ottla.broker.config.dynamic import ONE_BROKER_ONLY, is_dynamic
from ottla.broker.config.groups import GROUP_SETTINGS
from ottla.broker.config.layers import broker_settings
from ottla.broker.loop.slices import MAPPED_AT_ONCE, Waiting, mapped
from ottla.config import ConfigError, resolve, text_of
from ottla.controller.changes import Change, ChangedBrokerConfig, ChangedGroupConfig, ChangedTopicConfig
from ottla.controller.configs import ConfigChange, ConfigOperation, ResourceType, changed, check_asked, check_count
from ottla.controller.leaders import rules_changed
from ottla.controller.steps import InSteps
from ottla.controller.topic_names import check_name
from ottla.controller.topics import check_configs
from ottla.log.topic_config import TOPIC_SETTINGS
from ottla.wire.errors import ApiError, ErrorCode

if TYPE_CHECKING:
    from ottla.broker.broker import Broker

T = TypeVar("T")

MIN_INSYNC_REPLICAS = "min.insync.replicas"
RESOURCES_A_PART = 50


class ResourceChange(NamedTuple):
    """What is asked of one resource; `replaces` drops all that is set and not asked for."""

    kind: int
    name: str
    asked: Sequence[ConfigChange]
    replaces: bool = False


def answered_changes(
    broker: Broker,
    changes: Sequence[ResourceChange],
    make_answer: Callable[..., T],
    *,
    validate_only: bool,
    origin: int | None,
) -> Generator[Waiting | None, None, list[T]]:
    """Make the changes, and an answer of the API's own kind for each."""
    outcomes = yield from _change_configs(broker, changes, validate_only=validate_only, origin=origin)

    def answer(pair: tuple[ResourceChange, ApiError | None]) -> T:
        change, refusal = pair
        return make_answer(
            error_code=0 if refusal is None else refusal.code,
            error_message=None if refusal is None else refusal.message,
            resource_type=change.kind,
            resource_name=change.name,
        )

    return (yield from mapped(answer, zip(changes, outcomes, strict=True), MAPPED_AT_ONCE))


def _change_configs(
    broker: Broker, changes: Sequence[ResourceChange], *, validate_only: bool, origin: int | None
) -> Generator[Waiting | None, None, list[ApiError | None]]:
    """What became of each change, in their order, some at a time; None where it was made.

    `origin`: the broker that was asked, if it is not this one: its own settings are those that may be changed.
    """
    named = Counter((change.kind, change.name) for change in changes)
    outcomes: list[ApiError | None] = []
    for part in _parts(changes):
        outcomes += yield from _change_some(broker, part, named, origin, validate_only=validate_only)
        yield None
    return outcomes


def _parts(changes: Sequence[ResourceChange]) -> Iterator[list[ResourceChange]]:
    """Those that are changed together: settings of a broker alone, for they are checked with those of all brokers."""
    part: list[ResourceChange] = []
    for change in changes:
        is_alone = change.kind == ResourceType.BROKER
        if part and (is_alone or len(part) == RESOURCES_A_PART):
            yield part
            part = []
        part.append(change)
        if is_alone:
            yield part
            part = []
    if part:
        yield part


def _change_some(
    broker: Broker,
    asked: Sequence[ResourceChange],
    named: Counter[tuple[int, str]],
    origin: int | None,
    *,
    validate_only: bool,
) -> Generator[Waiting, None, list[ApiError | None]]:
    outcomes: list[ApiError | None] = [None] * len(asked)
    places: list[int] = []  # in `asked`, of those that are found good

    def decide() -> InSteps[list[Change]]:
        decisions: list[Change] = []
        for place, change in enumerate(asked):
            try:
                if named[change.kind, change.name] > 1:
                    raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")  # noqa: TRY301
                decisions.append(_decided(broker, change, origin))
                places.append(place)
            except ApiError as refusal:
                outcomes[place] = refusal.bare
        if validate_only:
            return []
        states = yield from rules_changed(broker.controller.cluster, broker.membership.settings(), decisions)
        return [*decisions, *states]

    made = yield from broker.controller.decided(decide)
    for place, (_, refusal) in zip(places, made, strict=False):  # of the states nobody asked
        outcomes[place] = refusal
    return outcomes


def _decided(broker: Broker, change: ResourceChange, origin: int | None) -> Change:
    check_asked(change.asked)
    match change.kind:
        case ResourceType.TOPIC:
            return _decided_topic(broker, change)
        case ResourceType.BROKER:
            return _decided_broker(broker, change, broker.node_id if origin is None else origin)
        case ResourceType.GROUP:
            return _decided_group(broker, change)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {change.kind}")


def _decided_topic(broker: Broker, change: ResourceChange) -> ChangedTopicConfig:
    name = change.name
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(name)
    cluster = broker.controller.cluster
    if name not in cluster.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    defaults = broker.settings.topic_defaults
    before = {} if change.replaces else cluster.topic_configs[name]
    texts = changed(before, change.asked, TOPIC_SETTINGS, lambda key: defaults.effective(key, {})[0] or "")
    check_configs(defaults, dict(texts))
    return ChangedTopicConfig(name, texts)


def _decided_group(broker: Broker, change: ResourceChange) -> ChangedGroupConfig:
    name, known = change.name, broker.controller.cluster.group_configs
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    before = {} if change.replaces else known.get(name, {})
    texts = changed(before, change.asked, GROUP_SETTINGS, lambda _key: "")
    try:
        broker.group_configs.check(texts)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return ChangedGroupConfig(name, texts, name in known)


def _decided_broker(broker: Broker, change: ResourceChange, asked_id: int) -> ChangedBrokerConfig:
    settings, known = broker.settings, broker.controller.cluster.broker_configs
    node_id = _node_id(asked_id, change.name)
    before = known.get(node_id, {})
    _check_changeable(change, node_id, before)
    definitions = broker_settings()
    texts = changed(
        {} if change.replaces else before,
        change.asked,
        definitions,
        lambda key: text_of(resolve(definitions[key], settings.layers)[0]) or "",
    )
    check_count(len(texts))
    try:
        if node_id is None:
            settings.check_dynamic(texts, known.get(broker.node_id, {}))
        else:
            settings.check_dynamic(known.get(None, {}), texts)
    except ConfigError as error:
        raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from error
    return ChangedBrokerConfig(node_id, texts)


def _node_id(asked_id: int, name: str) -> int | None:
    """The broker that a name stands for; None for all of them."""
    if not name:
        return None
    try:
        node_id = int(name)
    except ValueError:
        message = f"Node id must be an integer, but it is: {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message) from None
    if node_id != asked_id:
        message = f"Unexpected broker id, expected {asked_id}, but received {name}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return node_id


def _check_changeable(change: ResourceChange, node_id: int | None, before: dict[str, str]) -> None:
    names = [asked.name for asked in change.asked]
    fixed = [name for name in names if not is_dynamic(name)]
    if fixed:
        message = f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    if node_id is None:
        alone = [name for name in names if name in ONE_BROKER_ONLY]
        if alone:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "Cannot update these configs at default cluster level, broker id must be specified: "
                f"[{', '.join(alone)}]",
            )
        kept = {asked.name for asked in change.asked if asked.operation != ConfigOperation.DELETE}
        deleted = {asked.name for asked in change.asked if asked.operation == ConfigOperation.DELETE}
        removed = set(before) - kept if change.replaces else deleted
        if MIN_INSYNC_REPLICAS in removed:
            message = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise ApiError(ErrorCode.INVALID_CONFIG, message)
        return
    alone = [name for name in names if name in ONE_BROKER_ONLY]
    if alone:  # Kafka closes listeners and opens others; what is not done must not be said to be
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(alone)}]")
    if MIN_INSYNC_REPLICAS in names:
        message = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise ApiError(ErrorCode.INVALID_CONFIG, message)
