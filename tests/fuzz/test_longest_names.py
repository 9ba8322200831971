"""Names as long as the protocol lets them be are answered like others, whatever is made of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import ottla.testing
from ottla.testing.local_broker import LocalBroker
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.schema import Request
from ottla.wire.types import LONGEST_STRING_BYTES
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import group_requests as groups
from tests.conformance import requests
from tests.conformance import transaction_requests as transactions
from tests.conformance.connection import Connection
from tests.conformance.script import Topic

LONGEST = "n" * LONGEST_STRING_BYTES
LONGEST_WIDE = "ü" * (LONGEST_STRING_BYTES // 2)
TOPIC, BROKER, GROUP = 2, 4, 32

REQUESTS: dict[str, Callable[[str], Request]] = {
    "create topics": lambda name: requests.create_topics(requests.creatable(name)),
    "delete topics": requests.delete_topics,
    "create partitions": lambda name: requests.create_partitions((name, 2, None)),
    "metadata": requests.metadata,
    "list offsets": lambda name: requests.list_offsets(Topic(name, ZERO_UUID), -1),
    "describe a topic": lambda name: requests.describe_configs(TOPIC, name),
    "describe a broker": lambda name: requests.describe_configs(BROKER, name),
    "describe a group": lambda name: requests.describe_configs(GROUP, name),
    "alter a topic": lambda name: requests.change_configs(TOPIC, name, [("a", 0, "b")]),
    "alter a broker": lambda name: requests.change_configs(BROKER, name, [("a", 0, "b")]),
    "alter a group": lambda name: requests.change_configs(GROUP, name, [("a", 0, "b")]),
    "a configuration": lambda name: requests.change_configs(BROKER, "1", [(name, 0, name)]),
    "a value": lambda name: requests.change_configs(BROKER, "1", [("max.connections", 0, name)]),
    "quotas of a client": lambda name: requests.alter_quotas([("client-id", name)], ("producer_byte_rate", 0.5)),
    "quotas of an address": lambda name: requests.alter_quotas([("ip", name)], ("connection_creation_rate", 5.0)),
    "quotas of nobody": lambda name: requests.alter_quotas([(name, name)], ("producer_byte_rate", 5.0)),
    "a quota": lambda name: requests.alter_quotas([("client-id", "c")], (name, 5.0)),
    "found quotas": lambda name: requests.describe_quotas((name, 0, name)),
    "find a group": groups.find_coordinators,
    "describe groups": groups.describe_groups,
    "describe consumer groups": groups.describe_consumer_groups,
    "delete groups": groups.delete_groups,
    "beat": lambda name: groups.beat(name, name, 1),
    "enter": lambda name: groups.enter(name, name, "t"),
    "an assignor": lambda name: groups.enter("g", "m", "t", server_assignor=name),
    "heartbeat": lambda name: groups.heartbeat(name, 1, name),
    "commit": lambda name: groups.commit(name, Topic("t", ZERO_UUID)),
    "fetch offsets": lambda name: groups.fetch_offsets(name, None),
    "init": lambda name: transactions.init(name),
    "describe transactions": transactions.describe_transactions,
    "describe producers": lambda name: transactions.describe_producers({name: [0]}),
}


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalBroker]:
    with ottla.testing.broker(settings={"offsets.topic.num.partitions": "1"}) as broker:
        yield broker


@pytest.mark.parametrize("name", [LONGEST, LONGEST_WIDE], ids=["plain", "wide"])
@pytest.mark.parametrize("request_of", REQUESTS.values(), ids=REQUESTS)
def test_the_longest_name_is_answered(broker: LocalBroker, request_of: Callable[[str], Request], name: str) -> None:
    request = request_of(name)
    with contextlib.closing(Connection((broker.host, broker.port))) as connection:
        version = request.api.highest
        connection.send(encode_request(1, "client", request, version))
        frame = connection.receive(10)
        assert isinstance(frame, bytes), frame
        decode_response(frame, request.api, version)


@pytest.mark.parametrize("client_id", [LONGEST, LONGEST_WIDE], ids=["plain", "wide"])
def test_the_longest_client_id_joins_a_group_and_leads_it(broker: LocalBroker, client_id: str) -> None:
    group = f"led-{client_id[0]}"
    with contextlib.closing(Connection((broker.host, broker.port))) as connection:

        def ask(request: Request, version: int) -> Any:
            connection.send(encode_request(1, client_id, request, version))
            frame = connection.receive(10)
            assert isinstance(frame, bytes), frame
            return decode_response(frame, request.api, version)[1]

        promised = ask(groups.join(group), 9)
        member_id = promised.member_id
        assert len(member_id.encode()) <= LONGEST_STRING_BYTES
        joined = ask(groups.join(group, member_id), 9)
        assert [member.member_id for member in joined.members] == [member_id]
        assert joined.leader == member_id
        described = ask(groups.describe_groups(group), 5)
        assert described.groups[0].members[0].client_id == client_id
