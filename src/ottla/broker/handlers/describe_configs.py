"""DescribeConfigs (32), versions 1 to 4. Topics, brokers and groups are described; loggers are not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from ottla.broker.config.dynamic import is_dynamic
from ottla.broker.config.layers import broker_settings
from ottla.broker.loop.slices import Steps, mapped, with_few_repeats
from ottla.config import Described, Kind, Source
from ottla.controller.configs import ResourceType
from ottla.controller.topic_names import check_name
from ottla.records.growth import CONFIG_NAME, encode_growths
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context
    from ottla.broker.topics import Topic

UNKNOWN_TYPE = 0
MALFORMED = (
    "This most likely occurs because of a request being malformed by the client library or the message was sent to "
    "an incompatible broker. See the broker logs for more details."
)


def handle(broker: Broker, request: DescribeConfigsRequest, context: Context) -> Steps:
    named = [(each.resource_type, each.resource_name, _keys(each)) for each in request.resources]
    results = yield from mapped(lambda resource: _result(broker, request, *resource), with_few_repeats(named))
    return DescribeConfigsResponse(results=results)


def _keys(resource: DescribeConfigsResource) -> frozenset[str]:
    """Those that are asked for; none: all of them."""
    return frozenset(resource.configuration_keys or ())


def _result(
    broker: Broker, request: DescribeConfigsRequest, kind: int, name: str, keys: frozenset[str]
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        error_code=0,
        error_message="",
        resource_type=kind,
        resource_name=name,
        configs=[],
    )
    try:
        entries = _entries(broker, kind, name)
    except ApiError as refusal:
        result.error_code, result.error_message = refusal.code, refusal.message
        return result
    result.configs = [_entry(entry, request) for entry in entries if not keys or entry.name in keys]
    if kind == ResourceType.BROKER:
        for config in result.configs:
            _mark_of_broker(config)
    return result


def _entries(broker: Broker, kind: int, name: str) -> list[Described]:
    match kind:
        case ResourceType.TOPIC:
            check_name(name)
            topic = broker.topics.by_name.get(name)
            if topic is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
            entries = broker.settings.topic_defaults.describe(topic.overrides)
            return [*entries, _growth(topic)] if topic.growths else entries
        case ResourceType.BROKER:
            return _broker_entries(broker, name)
        case ResourceType.GROUP:
            if not name:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return broker.group_configs.describe(name)
    raise ApiError(ErrorCode.INVALID_REQUEST, MALFORMED)


def _growth(topic: Topic) -> Described:
    """How a topic has grown in order. Clients without a word for that see it as one more setting."""
    text = json.dumps(encode_growths(topic.growths), separators=(",", ":"))
    return Described(CONFIG_NAME, text, Source.DEFAULT, Kind.STRING, False, (), "How the topic has grown in order.")


def _broker_entries(broker: Broker, name: str) -> list[Described]:
    if not name:
        return broker.settings.describe_cluster()
    try:
        node_id = int(name) if name == name.strip() else None
    except ValueError:
        node_id = None
    if node_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if node_id != broker.node_id:
        message = f"Unexpected broker id, expected {broker.node_id} or empty string, but received {node_id}"
        raise ApiError(ErrorCode.INVALID_REQUEST, message)
    return broker.settings.describe()


def _mark_of_broker(config: DescribeConfigsResourceResult) -> None:
    is_known = config.name in broker_settings()
    config.read_only = not is_known or not is_dynamic(config.name)
    if not is_known:
        config.config_type, config.documentation = UNKNOWN_TYPE, None


def _entry(entry: Described, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    synonyms = entry.synonyms if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.text,
        read_only=entry.name == CONFIG_NAME,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.text, source=synonym.source) for synonym in synonyms
        ],
        config_type=entry.kind,
        documentation=entry.documentation if request.include_documentation else None,
    )
