"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ottla.wire.messages import incremental_alter_configs as incremental
from ottla.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.conformance.exchange import Exchanges
from tests.conformance.exchanges.topics import CONFIGS
from tests.conformance.requests import (
    APPEND,
    BROKER,
    BROKER_LOGGER,
    CLIENT_METRICS,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    UNKNOWN,
    alter_configs,
    change_configs,
    describe_configs,
)
from tests.conformance.script import Script, Topic

exchanges = Exchanges("configs")

RETENTION = "retention.ms"


@exchanges.versions((1, 2, 3, 4))
def describe_a_topic(script: Script, version: int) -> None:
    script.send(describe_configs(TOPIC, script.topic().name), version)


@exchanges.cases({"version 1": (1, False), "version 4": (4, False), "version 4 and documentation": (4, True)})
def describe_a_topic_with_synonyms(script: Script, asked: tuple[int, bool]) -> None:
    version, documentation = asked
    topic = script.topic(configs={RETENTION: "1000"})
    script.send(describe_configs(TOPIC, topic.name, synonyms=True, documentation=documentation), version)


KEYS: dict[str, list[str] | None] = {
    "one": [RETENTION],
    "none": [],
    "all": None,
    "unknown": ["foo"],
    "known and unknown": [RETENTION, "foo"],
    "the same twice": [RETENTION, RETENTION],
}


@exchanges.cases(KEYS)
def describe_keys(script: Script, keys: list[str] | None) -> None:
    script.send(describe_configs(TOPIC, script.topic(configs={RETENTION: "5"}).name, keys))


BAD_RESOURCES = {
    "an unknown topic": (TOPIC, UNKNOWN.name),
    "a topic with a bad name": (TOPIC, "a/b"),
    "a topic with an empty name": (TOPIC, ""),
    "another broker": (BROKER, "9"),
    "a broker that is no number": (BROKER, "x"),
    "a broker below zero": (BROKER, "-1"),
    "type 0": (0, "x"),
    "type 99": (99, "x"),
    "type 3": (3, "x"),
    "another logger": (BROKER_LOGGER, "9"),
    "a logger of no name": (BROKER_LOGGER, ""),
    "a group of no name": (GROUP, ""),
    "client metrics of no name": (CLIENT_METRICS, ""),
}


@exchanges.cases(BAD_RESOURCES)
def describe_badly(script: Script, resource: tuple[int, str]) -> None:
    script.send(describe_configs(*resource))


@exchanges.one
def describe_all_brokers(script: Script) -> None:
    script.send(describe_configs(BROKER, ""))


BROKER_KEYS = [
    "auto.create.topics.enable", "num.partitions", "default.replication.factor", "message.max.bytes",
    "log.retention.ms", "log.retention.hours", "log.segment.bytes", "log.cleanup.policy", "compression.type",
    "min.insync.replicas", "num.io.threads", "max.connections", "connections.max.idle.ms", "delete.topic.enable",
    "socket.request.max.bytes", "log.flush.interval.messages", "fetch.max.bytes", "log.message.timestamp.type",
    "ssl.keystore.password", "metric.reporters", "log.cleaner.enable",
]  # fmt: skip


@exchanges.cases({"version 1": (1, False), "version 3": (3, True), "version 4": (4, True)})
def describe_a_broker(script: Script, asked: tuple[int, bool]) -> None:
    version, synonyms = asked
    script.send(describe_configs(BROKER, "1", BROKER_KEYS, synonyms=synonyms), version)


@exchanges.one
def describe_a_group(script: Script) -> None:
    script.send(describe_configs(GROUP, script.name("group"), synonyms=True))


@exchanges.one
def describe_client_metrics(script: Script) -> None:
    script.send(describe_configs(CLIENT_METRICS, script.name("metrics"), synonyms=True))


@exchanges.one
def describe_several(script: Script) -> None:
    topic = script.topic()
    named = [(TOPIC, topic.name), (TOPIC, UNKNOWN.name), (TOPIC, topic.name), (BROKER, "9")]
    resources = [
        DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[RETENTION])
        for kind, name in named
    ]
    script.send(DescribeConfigsRequest(resources=resources))


@exchanges.one
def describe_nothing(script: Script) -> None:
    script.send(DescribeConfigsRequest(resources=[]))


def show(script: Script, topic: Topic, **expected: str) -> None:
    """What a topic has of its own, once it has what is expected."""
    request = describe_configs(TOPIC, topic.name, [key.replace("_", ".") for key in expected], synonyms=True)
    values = set(expected.values())
    script.settle(request, until=lambda answer: {config.value for config in answer.results[0].configs} == values)


@exchanges.versions((0, 1, 2))
def replace(script: Script, version: int) -> None:
    topic = script.topic(configs={"cleanup.policy": "compact"})
    script.send(alter_configs(TOPIC, topic.name, [(RETENTION, "1000")]), version)
    show(script, topic, retention_ms="1000", cleanup_policy="delete")


@exchanges.one
def replace_in_validation_only(script: Script) -> None:
    topic = script.topic()
    script.send(alter_configs(TOPIC, topic.name, [(RETENTION, "1000")], validate_only=True))
    script.send(describe_configs(TOPIC, topic.name, [RETENTION]))


@exchanges.one
def replace_with_nothing(script: Script) -> None:
    topic = script.topic(configs={RETENTION: "1000"})
    script.send(alter_configs(TOPIC, topic.name, []))
    show(script, topic, retention_ms="604800000")


@exchanges.cases(CONFIGS)
def replace_with_a_config(script: Script, configs: list[tuple[str, str | None]]) -> None:
    script.send(alter_configs(TOPIC, script.topic().name, configs, validate_only=True))


@exchanges.cases(BAD_RESOURCES)
def replace_badly(script: Script, resource: tuple[int, str]) -> None:
    script.send(alter_configs(*resource, [(RETENTION, "1000")], validate_only=True))


@exchanges.versions((0, 1))
def change(script: Script, version: int) -> None:
    topic = script.topic(configs={"cleanup.policy": "compact"})
    script.send(change_configs(TOPIC, topic.name, [(RETENTION, SET, "1000")]), version)
    show(script, topic, retention_ms="1000", cleanup_policy="compact")


@exchanges.one
def change_in_validation_only(script: Script) -> None:
    topic = script.topic()
    script.send(change_configs(TOPIC, topic.name, [(RETENTION, SET, "1000")], validate_only=True))
    script.send(describe_configs(TOPIC, topic.name, [RETENTION]))


class Change(NamedTuple):
    operations: Sequence[tuple[str, int, str | None]]
    before: Mapping[str, str] = MappingProxyType({})
    policy: str | None = None
    """The cleanup policy that comes of it."""


POLICY = "cleanup.policy"
CHANGES = {
    "delete": Change([(POLICY, DELETE, None)], {POLICY: "compact"}, "delete"),
    "delete with a value": Change([(POLICY, DELETE, "compact")], {POLICY: "compact"}, "delete"),
    "delete what is not set": Change([(POLICY, DELETE, None)], {}, "delete"),
    "append": Change([(POLICY, APPEND, "compact")], {POLICY: "delete"}, "delete,compact"),
    "append to the default": Change([(POLICY, APPEND, "compact")], {}, "delete,compact"),
    "append what is there": Change([(POLICY, APPEND, "delete")], {POLICY: "delete"}, "delete"),
    "append two": Change([(POLICY, APPEND, "compact,delete")], {POLICY: "delete"}, "delete,compact"),
    "append nothing": Change([(POLICY, APPEND, "")], {POLICY: "delete"}),
    "append null": Change([(POLICY, APPEND, None)], {POLICY: "delete"}),
    "append what is not allowed": Change([(POLICY, APPEND, "shred")]),
    "append to what is no list": Change([(RETENTION, APPEND, "1")]),
    "subtract": Change([(POLICY, SUBTRACT, "delete")], {POLICY: "compact,delete"}, "compact"),
    "subtract what is not there": Change([(POLICY, SUBTRACT, "compact")], {POLICY: "delete"}, "delete"),
    "subtract the last": Change([(POLICY, SUBTRACT, "delete")], {POLICY: "delete"}),
    "subtract null": Change([(POLICY, SUBTRACT, None)]),
    "subtract from what is no list": Change([(RETENTION, SUBTRACT, "1")]),
    "set null": Change([(RETENTION, SET, None)]),
    "set the same key twice": Change([(RETENTION, SET, "1"), (RETENTION, SET, "2")]),
    "set and delete the same key": Change([(RETENTION, SET, "1"), (RETENTION, DELETE, None)]),
    "operation 9": Change([(RETENTION, 9, "1")]),
    "operation -1": Change([(RETENTION, -1, "1")]),
    "delete an unknown key": Change([("foo", DELETE, None)]),
    "append to an unknown key": Change([("foo", APPEND, "1")]),
    "nothing": Change([]),
}


@exchanges.cases(CHANGES)
def change_by(script: Script, change: Change) -> None:
    topic = script.topic(configs=change.before)
    script.send(change_configs(TOPIC, topic.name, change.operations))
    if change.policy is not None:
        show(script, topic, cleanup_policy=change.policy)


@exchanges.cases(CONFIGS)
def change_to_a_config(script: Script, configs: list[tuple[str, str | None]]) -> None:
    changes = [(name, SET, value) for name, value in configs]
    script.send(change_configs(TOPIC, script.topic().name, changes, validate_only=True))


@exchanges.cases(BAD_RESOURCES)
def change_badly(script: Script, resource: tuple[int, str]) -> None:
    script.send(change_configs(*resource, [(RETENTION, SET, "1000")], validate_only=True))


BROKER_CHANGES: dict[str, tuple[str, list[tuple[str, int, str | None]]]] = {
    "a key that may change": ("1", [("message.max.bytes", SET, "2000000")]),
    "a key of all brokers": ("", [("message.max.bytes", SET, "2000000")]),
    "a key of one broker for all": ("", [("listeners", SET, "PLAINTEXT://127.0.0.1:1")]),
    "a key that is read only": ("1", [("num.partitions", SET, "2")]),
    "a key that is unknown": ("1", [("foo", SET, "2")]),
    "a value that is none": ("1", [("message.max.bytes", SET, "x")]),
    "a value below its least": ("1", [("message.max.bytes", SET, "-1")]),
    "delete what is not set": ("1", [("message.max.bytes", DELETE, None)]),
    "limits of addresses": ("1", [("max.connections.per.ip.overrides", SET, "127.0.0.9:3,localhost:2147483647")]),
    "limits of no addresses": ("1", [("max.connections.per.ip.overrides", SET, "")]),
    "a limit of an address that is no number": ("1", [("max.connections.per.ip.overrides", SET, "127.0.0.9:x")]),
    "a limit of an address below zero": ("1", [("max.connections.per.ip.overrides", SET, "127.0.0.9:-1")]),
    "an address without a limit": ("1", [("max.connections.per.ip.overrides", SET, "127.0.0.9")]),
    "a limit of a host that nobody knows": ("1", [("max.connections.per.ip.overrides", SET, "no.such.host.invalid:3")]),
}


@exchanges.cases(BROKER_CHANGES)
def change_a_broker(script: Script, asked: tuple[str, list[tuple[str, int, str | None]]]) -> None:
    name, changes = asked
    script.send(change_configs(BROKER, name, changes, validate_only=True))


def change_all(*rows: tuple[int, str, str, str]) -> incremental.IncrementalAlterConfigsRequest:
    """Rows are a type, a name, a key and a value."""
    resources = [
        incremental.AlterConfigsResource(
            resource_type=kind,
            resource_name=name,
            configs=[incremental.AlterableConfig(name=key, config_operation=SET, value=value)],
        )
        for kind, name, key, value in rows
    ]
    return incremental.IncrementalAlterConfigsRequest(resources=resources, validate_only=False)


@exchanges.one
def change_good_and_bad_topics(script: Script) -> None:
    topic = script.topic()
    script.send(change_all((TOPIC, topic.name, RETENTION, "1"), (TOPIC, UNKNOWN.name, RETENTION, "1")))
    show(script, topic, retention_ms="1")


@exchanges.one
def change_the_same_topic_twice(script: Script) -> None:
    topic = script.topic()
    script.send(change_all((TOPIC, topic.name, RETENTION, "1"), (TOPIC, topic.name, RETENTION, "2")))


@exchanges.one
def change_nothing(script: Script) -> None:
    script.send(change_all())


@exchanges.one
def a_default_of_all_brokers_shows_in_a_topic(script: Script) -> None:
    topic = script.topic()
    request = describe_configs(TOPIC, topic.name, ["max.message.bytes"], synonyms=True)

    def shows(value: str) -> Any:
        return lambda answer: answer.results[0].configs[0].value == value

    script.send(change_configs(BROKER, "", [("message.max.bytes", SET, "2000000")]))
    try:
        script.settle(request, until=shows("2000000"))
        script.send(describe_configs(BROKER, "", synonyms=True))
    finally:
        script.send(change_configs(BROKER, "", [("message.max.bytes", DELETE, None)]))
    script.settle(request, until=shows("1048588"))


@exchanges.cases({"all": [], "topics": [TOPIC], "topics twice": [TOPIC, TOPIC], "unknown": [99], "loggers": [8]})
def list_resources(script: Script, kinds: list[int]) -> None:
    script.topic()
    script.send(ListConfigResourcesRequest(resource_types=kinds), only_own=True)


@exchanges.cases({"brokers": [BROKER], "client metrics": [CLIENT_METRICS], "loggers": [BROKER_LOGGER]})
def list_all_resources_of(script: Script, kinds: list[int]) -> None:
    script.send(ListConfigResourcesRequest(resource_types=kinds))


@exchanges.one
def list_resources_in_version_0(script: Script) -> None:
    script.send(ListConfigResourcesRequest(), 0)
