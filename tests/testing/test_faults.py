"""Faults: each does what it says, to the requests it was made for, as often as it was asked to."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.broker.api_table import served_apis
from ottla.records.build import build_batch
from ottla.testing import LocalBroker
from ottla.testing.refusals import can_be_refused, refusal
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request, encode_response
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.registry import REQUESTS
from ottla.wire.schema import Request, Struct
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import requests
from tests.conformance.connection import Connection, NoFrame
from tests.conformance.script import Topic
from tests.wire.strategies import filled

T = Topic("t", ZERO_UUID)
PRODUCE_VERSION = 9


@pytest.fixture
def ottla(ottla: LocalBroker) -> LocalBroker:
    ottla.topic("t")
    return ottla


def send(connection: Connection, request: Request, version: int = PRODUCE_VERSION, client_id: str = "") -> None:
    connection.send(encode_request(1, client_id, request, version))


def answer(connection: Connection, request: Request, version: int = PRODUCE_VERSION) -> Any:
    frame = connection.receive(10)
    assert isinstance(frame, bytes), frame
    return decode_response(frame, request.api, version)[1]


def one_record() -> Request:
    return requests.produce(T, build_batch([b"v"], timestamp=0))


def ask(broker: LocalBroker, request: Request, version: int = PRODUCE_VERSION, client_id: str = "") -> Any:
    with contextlib.closing(Connection((broker.host, broker.port))) as connection:
        send(connection, request, version, client_id)
        return answer(connection, request, version)


def produced_code(broker: LocalBroker, **options: Any) -> int:
    code: int = ask(broker, one_record(), **options).responses[0].partition_responses[0].error_code
    return code


def test_an_error_is_answered_as_often_as_asked_and_nothing_is_done(ottla: LocalBroker) -> None:
    fault = ottla.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    assert [produced_code(ottla) for _ in range(3)] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2 + [0]
    assert fault.count == 2
    assert ottla.values("t") == [b"v"]


def test_some_requests_pass_first(ottla: LocalBroker) -> None:
    ottla.faults.error("produce", 56, after=1)
    assert [produced_code(ottla) for _ in range(3)] == [0, ErrorCode.KAFKA_STORAGE_ERROR, 0]


def test_only_what_it_was_made_for(ottla: LocalBroker) -> None:
    ottla.topic("u")
    ottla.faults.error("Produce", 6, topic="u")
    ottla.faults.error("Produce", 6, client_id="other")
    assert produced_code(ottla) == 0
    assert produced_code(ottla, client_id="other") == 6
    other = requests.produce(Topic("u", ZERO_UUID), build_batch([b"v"], timestamp=0))
    assert ask(ottla, other).responses[0].partition_responses[0].error_code == 6


def test_faults_are_met_in_their_order(ottla: LocalBroker) -> None:
    ottla.faults.error("Produce", 6)
    ottla.faults.error("Produce", 7)
    assert [produced_code(ottla) for _ in range(3)] == [6, 7, 0]


def test_one_that_is_taken_back_is_not_met(ottla: LocalBroker) -> None:
    ottla.faults.error("Produce", 6).cancel()
    assert produced_code(ottla) == 0
    ottla.faults.error("Produce", 6)
    ottla.faults.clear()
    assert produced_code(ottla) == 0


def test_the_short_way_of_produce_has_faults_too(ottla: LocalBroker) -> None:
    assert [produced_code(ottla) for _ in range(3)] == [0, 0, 0]
    ottla.faults.error("Produce", 6)
    assert [produced_code(ottla) for _ in range(3)] == [6, 0, 0]


def test_a_delay_holds_back_the_connection_and_keeps_the_order(ottla: LocalBroker) -> None:
    ottla.faults.delay("Produce", 0.2)
    started = time.monotonic()
    with contextlib.closing(Connection((ottla.host, ottla.port))) as connection:
        send(connection, one_record())
        metadata = MetadataRequest(topics=[])
        connection.send(encode_request(2, None, metadata, 1))
        assert answer(connection, one_record()).responses
        assert time.monotonic() - started >= 0.2
        assert answer(connection, metadata, 1).brokers
    assert ottla.values("t") == [b"v"]


def test_silence_is_no_answer_and_no_effect(ottla: LocalBroker) -> None:
    fault = ottla.faults.silence("Produce")
    with contextlib.closing(Connection((ottla.host, ottla.port))) as connection:
        send(connection, one_record())
        fault.wait()
        assert connection.receive(0.05) is NoFrame.SILENCE
    assert ottla.values("t") == []


@pytest.mark.parametrize(("make", "values"), [("cut", []), ("lose_answer", [b"v"])])
def test_a_cut_connection(ottla: LocalBroker, make: str, values: list[bytes]) -> None:
    inject: Callable[[str], object] = getattr(ottla.faults, make)
    inject("Produce")
    with contextlib.closing(Connection((ottla.host, ottla.port))) as connection:
        send(connection, one_record())
        assert connection.receive(10) is NoFrame.CLOSED
    assert ottla.values("t") == values


def test_metadata_is_refused_without_losing_the_brokers(ottla: LocalBroker) -> None:
    ottla.faults.error("Metadata", "LEADER_NOT_AVAILABLE")
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
    response = ask(ottla, request, 9)
    assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert len(response.brokers) == 1


def test_a_fault_that_was_not_met_is_told(ottla: LocalBroker) -> None:
    fault = ottla.faults.cut("Fetch")
    with pytest.raises(AssertionError, match="no Fetch request met the fault"):
        fault.wait(0.01)


def test_requests_can_be_watched_and_counted(ottla: LocalBroker) -> None:
    watched = ottla.faults.watch("Produce", times=5)
    assert [produced_code(ottla) for _ in range(2)] == [0, 0]
    watched.wait(count=2)
    assert ottla.values("t") == [b"v", b"v"]
    with pytest.raises(AssertionError, match="only 2 Produce request"):
        watched.wait(0.01, count=3)


def test_names_that_do_not_exist_are_told(ottla: LocalBroker) -> None:
    with pytest.raises(ValueError, match="there is no API 'Prodcue'"):
        ottla.faults.cut("Prodcue")
    with pytest.raises(KeyError):
        ottla.faults.error("Produce", "NO_SUCH_ERROR")
    with pytest.raises(ValueError, match="cut it, delay it"):
        ottla.faults.error("DescribeCluster", 6)


def answered_of(broker: LocalBroker, count: int) -> int:
    """How many of so many requests, each on a connection of its own, were answered."""
    answered = 0
    for _ in range(count):
        with contextlib.closing(Connection((broker.host, broker.port))) as connection:
            send(connection, one_record())
            answered += isinstance(connection.receive(10), bytes)
    return answered


def test_a_bad_network_is_the_same_for_the_same_seed(ottla: LocalBroker) -> None:
    told = []
    for _ in range(2):
        before = len(ottla.values("t"))
        chance = ottla.faults.at_random(7, cut=0.2, lose_answer=0.2, delay=0.2, delay_seconds=0.001)
        answered = answered_of(ottla, 50)
        assert answered == 50 - chance.counts["cut"] - chance.counts["lose_answer"]
        assert len(ottla.values("t")) - before == 50 - chance.counts["cut"]
        assert chance.counts["delay"] > 0
        told.append(chance.counts)
    assert told[0] == told[1]
    ottla.faults.clear()
    assert answered_of(ottla, 5) == 5


def test_what_a_test_asks_for_goes_before_chance(ottla: LocalBroker) -> None:
    ottla.faults.at_random(7, cut=1.0)
    ottla.faults.error("Produce", 6)
    assert produced_code(ottla) == 6
    assert answered_of(ottla, 3) == 0


def test_chances_that_cannot_be_are_told(ottla: LocalBroker) -> None:
    with pytest.raises(ValueError, match="together at most 1"):
        ottla.faults.at_random(7, cut=0.7, delay=0.7)


REFUSED = [
    (api, version)
    for api in served_apis()
    if can_be_refused(api)
    for version in range(api.least_served, api.highest + 1)
]


@pytest.mark.parametrize(("api", "version"), REFUSED, ids=lambda value: getattr(value, "name", str(value)))
def test_every_refusal_can_be_sent_in_every_version(api: Any, version: int) -> None:
    request = filled(REQUESTS[api.key], version)
    frame = b"".join(encode_response(1, refusal(request, version, 6), version))[4:]  # type: ignore[arg-type]
    _, response = decode_response(frame, api, version)
    assert 6 in set(_codes(response))


def _codes(part: Any) -> Iterator[int]:
    """Every error code that stands anywhere in an answer."""
    if isinstance(part, list):
        for each in part:
            yield from _codes(each)
    elif isinstance(part, Struct):
        for name in type(part).__annotations__:
            value = getattr(part, name)
            if name.endswith("error_code"):
                yield value
            else:
                yield from _codes(value)
