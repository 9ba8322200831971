"""Quotas over the wire: set, found, obeyed and kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ottla.testing
from ottla.broker.handlers import alter_client_quotas, describe_client_quotas
from ottla.client import Admin
from ottla.wire.messages import alter_client_quotas as altering
from ottla.wire.messages import describe_client_quotas as describing
from tests.broker.opened_broker import OpenBroker

Entity = list[tuple[str, str | None]]
Quotas = dict[str, float | None]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[OpenBroker]:
    opened = OpenBroker(tmp_path)
    yield opened
    opened.stop()


def alter(
    opened: OpenBroker, *entries: tuple[Entity, Quotas], validate_only: bool = False, version: int = 1
) -> list[tuple[int, str | None, Entity]]:
    request = altering.AlterClientQuotasRequest(
        entries=[
            altering.EntryData(
                entity=[altering.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[
                    altering.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()
                ],
            )
            for entity, quotas in entries
        ],
        validate_only=validate_only,
    )
    answer = opened.ask(alter_client_quotas, request, version)
    return [
        (entry.error_code, entry.error_message, [(part.entity_type, part.entity_name) for part in entry.entity])
        for entry in answer.entries
    ]


def describe(
    opened: OpenBroker, *components: tuple[str, int, str | None], strict: bool = False
) -> list[tuple[Entity, dict[str, float]]]:
    request = describing.DescribeClientQuotasRequest(
        components=[
            describing.ComponentData(entity_type=kind, match_type=match_type, match=match)
            for kind, match_type, match in components
        ],
        strict=strict,
    )
    answer = opened.ask(describe_client_quotas, request)
    assert (answer.error_code, answer.error_message) == (0, "")
    return [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries
    ]


ENTITIES: list[Entity] = [
    [("client-id", "c1")],
    [("client-id", None)],
    [("client-id", "a b/ü")],
    [("user", "u1")],
    [("user", None)],
    [("client-id", "c1"), ("user", "u1")],
    [("client-id", None), ("user", None)],
]


def test_quotas_of_every_entity_are_kept_over_restarts(opened: OpenBroker) -> None:
    for number, entity in enumerate(ENTITIES, 1):
        assert alter(opened, (entity, {"producer_byte_rate": float(number)})) == [(0, None, entity)]
    assert alter(opened, ([("ip", "1.2.3.4")], {"connection_creation_rate": 5.0}))[0][0] == 0
    expected = [(entity, {"producer_byte_rate": float(number)}) for number, entity in enumerate(ENTITIES, 1)]
    expected.append(([("ip", "1.2.3.4")], {"connection_creation_rate": 5.0}))
    for _ in range(2):
        assert sorted(describe(opened), key=str) == sorted(expected, key=str)
        limits = [
            opened.broker.quotas.limit("producer_byte_rate", *of) for of in (("c1", "u1"), ("other", "u1"), ("c1",))
        ]
        assert limits == [6.0, 4.0, 7.0]
        opened.stop()
        opened.start()


def test_quotas_are_changed_and_removed(opened: OpenBroker) -> None:
    entity = ENTITIES[0]
    alter(opened, (entity, {"producer_byte_rate": 1.0, "request_percentage": 1.5}), version=0)
    alter(opened, (entity, {"producer_byte_rate": 2.0, "request_percentage": None}))
    assert describe(opened, ("client-id", 0, "c1"), strict=True) == [(entity, {"producer_byte_rate": 2.0})]
    alter(opened, (entity, {"producer_byte_rate": None}))
    assert describe(opened) == []
    assert opened.broker.quotas.limit("producer_byte_rate", "c1") is None
    opened.stop()
    opened.start()
    assert describe(opened) == []


def test_validating_changes_nothing(opened: OpenBroker) -> None:
    assert alter(opened, (ENTITIES[0], {"producer_byte_rate": 1.0}), validate_only=True) == [(0, None, ENTITIES[0])]
    assert describe(opened) == []


def test_a_refused_entity_does_not_hold_up_the_others(opened: OpenBroker) -> None:
    good, bad = ENTITIES[0], ENTITIES[3]
    answers = alter(opened, (bad, {"producer_byte_rate": 1.5}), (good, {"producer_byte_rate": 1.0}))
    assert answers == [(42, "producer_byte_rate cannot be a fractional value.", bad), (0, None, good)]
    assert describe(opened) == [(good, {"producer_byte_rate": 1.0})]


def test_an_entity_that_comes_twice_is_answered_once_and_stays(opened: OpenBroker) -> None:
    entity: Entity = [("user", "u"), ("client-id", "c")]
    answers = alter(opened, (entity, {"producer_byte_rate": 1.0}), (entity[::-1], {}))
    message = "Ignoring duplicate entity ClientQuotaEntity(entries={client-id=c, user=u})"
    assert answers == [(42, message, entity[::-1])]
    assert describe(opened) == []


def test_a_filter_that_cannot_be_is_told(opened: OpenBroker) -> None:
    component = describing.ComponentData(entity_type="foo", match_type=2, match=None)
    request = describing.DescribeClientQuotasRequest(components=[component], strict=False)
    answer = opened.ask(describe_client_quotas, request)
    assert (answer.error_code, answer.error_message, answer.entries) == (35, "Unsupported entity type foo", None)


def test_who_owes_years_of_creations_is_answered() -> None:
    with ottla.testing.broker() as broker, Admin(f"{broker.host}:{broker.port}") as admin:
        admin.alter_quotas({"client-id": "eager"}, {"controller_mutation_rate": 1e-6})
        eager = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}", "client.id": "eager", "log_level": 0})
        eager.create_topics([NewTopic("many", 10, 1)])["many"].result(20)
