"""Client quotas: whom they may be for, what may be set, and who is found."""

import pytest

from ottla.controller.quotas import (
    Alteration,
    Entity,
    altered,
    check_components,
    check_entity,
    entity_at,
    entity_of,
    matches,
    quota_path,
)
from ottla.wire.errors import ApiError
from ottla.wire.messages.describe_client_quotas import ComponentData

ENTITIES: dict[Entity, str] = {
    (("client-id", "c"),): "/config/clients/c",
    (("client-id", None),): "/config/clients/<default>",
    (("user", "a/b"),): "/config/users/a%2Fb",
    (("user", None),): "/config/users/<default>",
    (("client-id", "c"), ("user", "u")): "/config/users/u/clients/c",
    (("client-id", None), ("user", "u")): "/config/users/u/clients/<default>",
    (("ip", "1.2.3.4"),): "/config/ips/1.2.3.4",
}


@pytest.mark.parametrize(("entity", "path"), ENTITIES.items())
def test_each_entity_has_its_place(entity: Entity, path: str) -> None:
    check_entity(entity)
    assert quota_path(entity) == path
    assert entity_at(path) == entity


def test_a_path_on_the_way_is_nobodys() -> None:
    assert entity_at("/config/users/u/clients") is None


def test_parts_come_in_one_order_and_the_last_of_a_type_counts() -> None:
    assert entity_of([("user", "u"), ("client-id", "c")]) == (("client-id", "c"), ("user", "u"))
    assert entity_of([("client-id", "a"), ("client-id", "b")]) == (("client-id", "b"),)


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        ((), "Invalid empty client quota entity"),
        ((("foo", "x"),), "Unhandled client quota entity type: foo"),
        ((("client-id", ""),), "Empty client-id not supported"),
        ((("user", ""),), "Empty user not supported"),
        ((("ip", "bad host"),), "bad host is not a valid IP or resolvable host."),
        (
            (("user", "u"), ("ip", "1.1.1.1")),
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
    ],
)
def test_entities_that_cannot_be(entity: Entity, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_entity(entity)
    assert (refused.value.code, refused.value.message) == (42, message)


@pytest.mark.parametrize(
    ("kind", "key", "value", "message"),
    [
        ("client-id", "foo", 1.0, "Invalid configuration key foo"),
        ("client-id", "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
        ("ip", "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
        ("client-id", "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
        ("client-id", "request_percentage", -1.0, "Quota request_percentage must be greater than 0"),
        ("client-id", "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
        ("ip", "connection_creation_rate", 1.5, "connection_creation_rate cannot be a fractional value."),
        ("client-id", "consumer_byte_rate", 1e30, "Proposed value for consumer_byte_rate is too large for a LONG."),
        ("client-id", "consumer_byte_rate", float("nan"), "Quota consumer_byte_rate must be a number"),
    ],
)
def test_values_that_cannot_be(kind: str, key: str, value: float, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        altered(((kind, None),), {}, [Alteration(key, value)])
    assert (refused.value.code, refused.value.message) == (42, message)


def test_quotas_are_set_and_removed() -> None:
    alterations = [Alteration("request_percentage", 1.5), Alteration("producer_byte_rate", None), Alteration("x", None)]
    before = {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0}
    after = altered((("client-id", "c"),), before, alterations)
    assert after == {"consumer_byte_rate": 2.0, "request_percentage": 1.5}


# Asking


def component(kind: str, match_type: int, match: str | None = None) -> ComponentData:
    return ComponentData(entity_type=kind, match_type=match_type, match=match)


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([component("foo", 2)], 35, "Unsupported entity type foo"),
        ([component("", 2)], 42, "Invalid empty entity type."),
        ([component("user", 7)], 42, "Unknown match type 7"),
        ([component("user", 2)] * 2, 42, "Entity type user cannot appear more than once in the filter."),
        ([component("user", 0)], 42, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([component("user", 1, "x")], 42, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([component("user", 2, "x")], 42, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        (
            [component("ip", 2), component("user", 2)],
            42,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        ),
    ],
)
def test_filters_that_cannot_be(components: list[ComponentData], code: int, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        check_components(components)
    assert (refused.value.code, refused.value.message) == (code, message)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, 7),
        ([], True, 0),
        ([component("client-id", 0, "c")], False, 2),
        ([component("client-id", 0, "c")], True, 1),
        ([component("client-id", 1)], False, 2),
        ([component("client-id", 2)], False, 4),
        ([component("client-id", 2)], True, 2),
        ([component("user", 0, "u"), component("client-id", 2)], False, 2),
        ([component("ip", 2)], True, 1),
        ([component("user", 0, "nobody")], False, 0),
    ],
)
def test_filters_find_their_entities(components: list[ComponentData], strict: bool, found: int) -> None:
    check_components(components)
    assert sum(matches(entity, components, strict=strict) for entity in ENTITIES) == found
