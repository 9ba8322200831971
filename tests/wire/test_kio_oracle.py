"""Every message and version that kio has too: the same bytes from both, and each reads the other's."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.index import load_entity_schema, load_request_schema, load_response_schema
from kio.static.constants import EntityType

from ottla.wire.apis import APIS
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.control_records import ControlRecordTypeSchema, EndTxnMarker
from ottla.wire.registry import REQUESTS, RESPONSES, snake_case
from ottla.wire.schema import Message
from tests.wire.joined import joined
from tests.wire.kio_counterpart import Counterpart
from tests.wire.strategies import structs

EXAMPLES = 10

PAIRS: list[tuple[type[Message], int]] = [
    *((REQUESTS[api.key], version) for api in APIS for version in range(api.least_served, api.highest + 1)),
    *((RESPONSES[api.key], version) for api in APIS for version in range(api.least_served, api.highest + 1)),
    *((ConsumerProtocolSubscription, version) for version in range(4)),
    *((ConsumerProtocolAssignment, version) for version in range(4)),
    (EndTxnMarker, 0),
    (ControlRecordTypeSchema, 0),
]


@cache
def counterpart_of(message: type[Message], version: int) -> Counterpart:
    for api in APIS:
        if message is REQUESTS[api.key]:
            return Counterpart(message, version, load_request_schema(api.key, version))
        if message is RESPONSES[api.key]:
            return Counterpart(message, version, load_response_schema(api.key, version))
    return Counterpart(message, version, load_entity_schema(snake_case(message.__name__), version, EntityType.data))


@pytest.mark.parametrize(
    ("message", "version"), PAIRS, ids=[f"{message.__name__}-{version}" for message, version in PAIRS]
)
@settings(
    max_examples=EXAMPLES,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_bytes_are_those_of_kio(message: type[Message], version: int, data: st.DataObject) -> None:
    counterpart = counterpart_of(message, version)
    ours = data.draw(structs(message, version, counterpart.narrow))
    theirs = counterpart.convert(ours)

    written = joined(message.writers[version](ours))
    assert written == counterpart.write(theirs)
    assert counterpart.read(written) == theirs
    assert message.readers[version](written, 0) == (ours, len(written))
