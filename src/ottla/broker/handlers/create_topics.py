"""CreateTopics (19), versions 2 to 7."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps
from ottla.broker.quotas.mutations import Mutations
from ottla.controller.changes import NewTopic
from ottla.log.topic_config import TOPIC_SETTINGS
from ottla.wire.errors import ApiError
from ottla.wire.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

FIRST_VERSION_WITH_CONFIGS = 5
FIRST_STRICT_VERSION = 6


def handle(broker: Broker, request: CreateTopicsRequest, context: Context) -> Steps:
    mutations = Mutations(broker, context, FIRST_STRICT_VERSION)
    decisions = yield from broker.topic_requests.create(
        request.topics, validate_only=request.validate_only, charge=mutations.charge
    )
    # Hundreds of topics are often created with the same configurations: each set of them is worked out once.
    configs: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
    topics = []
    for name, decision in decisions.items():
        yield None
        if isinstance(decision, ApiError):
            topics.append(_refused(name, decision))
            continue
        topics.append(topic := _created(decision))
        if context.version >= FIRST_VERSION_WITH_CONFIGS:
            key = frozenset(decision.overrides.items())
            if key not in configs:
                configs[key] = _configs(broker, decision.overrides)
            topic.configs = configs[key]
    return CreateTopicsResponse(throttle_time_ms=mutations.throttle(), topics=topics)


def _refused(name: str, refusal: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=refusal.code, error_message=refusal.message)


def _created(topic: NewTopic) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.node.topic_id,
        error_code=0,
        num_partitions=len(topic.node.replicas),
        replication_factor=len(topic.node.replicas[0]),
    )


def _configs(broker: Broker, overrides: dict[str, str]) -> list[CreatableTopicConfigs]:
    configs = []
    for name in sorted(TOPIC_SETTINGS):
        definition = TOPIC_SETTINGS[name]
        if definition.is_internal and name not in overrides:
            continue
        text, source = broker.settings.topic_defaults.effective(name, overrides)
        configs.append(
            CreatableTopicConfigs(
                name=name,
                value=text,
                read_only=False,
                config_source=source,
                is_sensitive=definition.is_sensitive,
            )
        )
    return configs
