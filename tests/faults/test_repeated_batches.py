"""What a producer had in flight when the broker went, and sends again to the next one, is written once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from ottla.records.build import build_batch
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import requests
from tests.conformance.connection import Connection
from tests.conformance.script import Topic
from tests.faults.broker_process import BrokerProcess

TOPIC = "repeated"
IN_FLIGHT = 5
PRODUCERS = (4711, 4712)
RESTARTS = 3
VERSION = 12
WAIT_S = 20.0

Batch = tuple[int, int]  # producer id, sequence


def send(broker: BrokerProcess, batches: list[Batch]) -> list[tuple[int, int]]:
    """Have all of them in flight at once; the error and the offset that each is answered with."""
    with contextlib.closing(Connection(broker.address)) as connection:
        for producer_id, sequence in batches:
            batch = build_batch(
                [b"%d" % sequence + b"." * 1000],
                timestamp=1000,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
            )
            request: Any = requests.produce(Topic(TOPIC, ZERO_UUID), batch, acks=-1)
            connection.send(encode_request(sequence, None, request, VERSION))
        answers = []
        for _ in batches:
            frame = connection.receive(WAIT_S)
            assert isinstance(frame, bytes)
            response: Any = decode_response(frame, request.api, VERSION)[1]
            [answer] = response.responses[0].partition_responses
            answers.append((answer.error_code, answer.base_offset))
        return answers


@pytest.mark.parametrize("stop", [BrokerProcess.errors, BrokerProcess.errors_until_killed], ids=["SIGTERM", "SIGKILL"])
def test_batches_in_flight_at_a_restart_are_known_when_they_come_again(
    tmp_path: Path, stop: Callable[[BrokerProcess], str]
) -> None:
    with BrokerProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(WAIT_S)
        stop(broker)
    batches: list[Batch] = []
    answers: list[tuple[int, int]] = []
    count = 0
    for number in range(RESTARTS):
        with BrokerProcess(tmp_path) as broker:
            assert send(broker, batches) == answers
            sequences = range(number * IN_FLIGHT, (number + 1) * IN_FLIGHT)
            batches = [(producer_id, sequence) for sequence in sequences for producer_id in PRODUCERS]
            answers = send(broker, batches)
            assert answers == [(0, count + each) for each in range(len(batches))]
            count += len(batches)
            assert stop(broker) == ""
    with BrokerProcess(tmp_path) as broker:
        assert send(broker, batches) == answers
