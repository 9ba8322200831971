"""DescribeClientQuotas and AlterClientQuotas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from ottla.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from tests.conformance.exchange import Exchanges
from tests.conformance.requests import ANY, DEFAULT, EXACT, alter_quotas, describe_quotas
from tests.conformance.script import Script

exchanges = Exchanges("quotas")

PRODUCED = "producer_byte_rate"
CONSUMED = "consumer_byte_rate"
REQUESTS = "request_percentage"
CLIENT, USER, IP = "client-id", "user", "ip"


def show(script: Script, request: DescribeClientQuotasRequest, entries: int, version: int = 1) -> None:
    script.settle(request, version, until=lambda answer: len(answer.entries or []) == entries)


@exchanges.versions((0, 1))
def set_show_and_remove(script: Script, version: int) -> None:
    client = script.name("client")
    shown = describe_quotas((CLIENT, EXACT, client))
    script.send(shown, version)
    script.send(alter_quotas([(CLIENT, client)], (PRODUCED, 1024.0), (CONSUMED, 2048.0), (REQUESTS, 50.5)), version)
    show(script, shown, 1, version)
    script.send(alter_quotas([(CLIENT, client)], (PRODUCED, None), (CONSUMED, None), (REQUESTS, None)), version)
    show(script, shown, 0, version)


@exchanges.one
def set_again(script: Script) -> None:
    client = script.name("client")
    script.ask(alter_quotas([(CLIENT, client)], (PRODUCED, 1.0), (CONSUMED, 2.0)))
    script.send(alter_quotas([(CLIENT, client)], (PRODUCED, 3.0), (CONSUMED, None)))
    script.settle(
        describe_quotas((CLIENT, EXACT, client)),
        until=lambda answer: [value.value for entry in answer.entries for value in entry.values] == [3.0],
    )


@exchanges.one
def set_in_validation_only(script: Script) -> None:
    client = script.name("client")
    script.send(alter_quotas([(CLIENT, client)], (PRODUCED, 1024.0), validate_only=True))
    script.send(describe_quotas((CLIENT, EXACT, client)))


@exchanges.one
def the_default_of_clients(script: Script) -> None:
    script.send(alter_quotas([(CLIENT, None)], (CONSUMED, 1e12)))
    try:
        show(script, describe_quotas((CLIENT, DEFAULT, None)), 1)
    finally:
        script.send(alter_quotas([(CLIENT, None)], (CONSUMED, None)))
    show(script, describe_quotas((CLIENT, DEFAULT, None)), 0)


@exchanges.one
def a_client_of_a_user(script: Script) -> None:
    client, user = script.name("client"), script.name("user")
    script.send(alter_quotas([(USER, user), (CLIENT, client)], (PRODUCED, 10.0)))
    show(script, describe_quotas((USER, EXACT, user), (CLIENT, EXACT, client)), 1)
    script.send(describe_quotas((USER, EXACT, user)))
    script.send(describe_quotas((USER, EXACT, user), strict=False))
    script.send(describe_quotas((CLIENT, EXACT, client), strict=False))
    script.send(describe_quotas((USER, EXACT, user), (CLIENT, ANY, None)))
    script.send(describe_quotas((USER, ANY, None), (CLIENT, EXACT, client)))
    script.send(alter_quotas([(USER, user), (CLIENT, client)], (PRODUCED, None)))


@exchanges.one
def an_address(script: Script) -> None:
    script.send(alter_quotas([(IP, "10.1.2.3")], ("connection_creation_rate", 100.0)))
    show(script, describe_quotas((IP, EXACT, "10.1.2.3")), 1)
    script.send(alter_quotas([(IP, "10.1.2.3")], ("connection_creation_rate", None)))
    show(script, describe_quotas((IP, EXACT, "10.1.2.3")), 0)


class Alteration(NamedTuple):
    entity: Sequence[tuple[str, str | None]]
    operations: Sequence[tuple[str, float | None]] = ((PRODUCED, 1024.0),)


ALTERATIONS = {
    "an unknown key": Alteration([(CLIENT, "c")], [("foo", 1.0)]),
    "a key of addresses": Alteration([(CLIENT, "c")], [("connection_creation_rate", 1.0)]),
    "a key of clients for an address": Alteration([(IP, "10.0.0.1")]),
    "a negative value": Alteration([(CLIENT, "c")], [(PRODUCED, -1.0)]),
    "a value of zero": Alteration([(CLIENT, "c")], [(PRODUCED, 0.0)]),
    "a rate with a fraction": Alteration([(CLIENT, "c")], [(PRODUCED, 1.5)]),
    "a percentage with a fraction": Alteration([(CLIENT, "c")], [(REQUESTS, 1.5)]),
    "a value above all longs": Alteration([(CLIENT, "c")], [(PRODUCED, 1e30)]),
    "a value that is no number": Alteration([(CLIENT, "c")], [(PRODUCED, float("nan"))]),
    "an endless value": Alteration([(CLIENT, "c")], [(PRODUCED, float("inf"))]),
    "the same key twice": Alteration([(CLIENT, "c")], [(PRODUCED, 1.0), (PRODUCED, 2.0)]),
    "no operation": Alteration([(CLIENT, "c")], []),
    "remove what is not there": Alteration([(CLIENT, "nobody")], [(PRODUCED, None)]),
    "remove an unknown key": Alteration([(CLIENT, "nobody")], [("foo", None)]),
    "an unknown type": Alteration([("thing", "x")]),
    "an empty type": Alteration([("", "x")]),
    "no entity": Alteration([]),
    "an empty name": Alteration([(CLIENT, "")]),
    "the same type twice": Alteration([(CLIENT, "a"), (CLIENT, "b")]),
    "an address and a client": Alteration([(IP, "10.0.0.1"), (CLIENT, "c")]),
    "an address that is none": Alteration([(IP, "no such host")], [("connection_creation_rate", 1.0)]),
    "scram of a user": Alteration([(USER, "u")], [("SCRAM-SHA-256", 1.0)]),
}


@exchanges.cases(ALTERATIONS)
def an_alteration(script: Script, alteration: Alteration) -> None:
    script.send(alter_quotas(alteration.entity, *alteration.operations, validate_only=True))


@exchanges.one
def the_same_entity_twice(script: Script) -> None:
    [entry] = alter_quotas([(CLIENT, script.name("client"))], (PRODUCED, 1.0)).entries
    script.send(AlterClientQuotasRequest(entries=[entry, entry], validate_only=True))


@exchanges.one
def good_and_bad_entities(script: Script) -> None:
    [good] = alter_quotas([(CLIENT, script.name("client"))], (PRODUCED, 1.0)).entries
    [bad] = alter_quotas([("thing", "x")], (PRODUCED, 1.0)).entries
    script.send(AlterClientQuotasRequest(entries=[good, bad], validate_only=True))


@exchanges.one
def no_alteration(script: Script) -> None:
    script.send(AlterClientQuotasRequest(entries=[], validate_only=False))


FILTERS: dict[str, list[tuple[str, int, str | None]]] = {
    "an unknown type": [("thing", EXACT, "x")],
    "an empty type": [("", EXACT, "x")],
    "an unknown way to match": [(CLIENT, 9, "x")],
    "exactly null": [(CLIENT, EXACT, None)],
    "a default with a name": [(CLIENT, DEFAULT, "x")],
    "any with a name": [(CLIENT, ANY, "x")],
    "the same type twice": [(CLIENT, EXACT, "a"), (CLIENT, EXACT, "b")],
    "an address and a client": [(IP, EXACT, "10.0.0.1"), (CLIENT, EXACT, "c")],
    "nobody": [(CLIENT, EXACT, "nobody")],
    "no default": [(USER, DEFAULT, None)],
}


@exchanges.cases(FILTERS)
def a_filter(script: Script, components: list[tuple[str, int, str | None]]) -> None:
    script.send(describe_quotas(*components))
