"""Batches that become much more than they are: a broker with its own limits refuses them, and does not pay for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.records.build import build_batch
from ottla.records.compression import GZIP, LZ4, ZSTD
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import decode_response, encode_request
from ottla.wire.uuids import ZERO_UUID
from tests.conformance import requests
from tests.conformance.connection import Connection
from tests.conformance.script import Topic
from tests.faults.broker_process import BrokerProcess

BOMB_BYTES = 192 << 20
MOST_MORE_BYTES = 64 << 20  # at any moment, beside what the broker had before
PRODUCE_VERSION = 12
WAIT_S = 60.0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """With the limits that everybody has."""
    with BrokerProcess(tmp_path_factory.mktemp("bombs") / "data") as broker:
        yield broker


def peak_bytes(broker: BrokerProcess) -> int:
    status = Path(f"/proc/{broker.process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


@pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])  # snappy makes nothing twenty times smaller
def test_a_bomb_is_refused_without_its_size_in_memory(broker: BrokerProcess, codec: int) -> None:
    with contextlib.closing(Connection(broker.address)) as connection:

        def ask_produce(batch: bytes) -> int:
            request = requests.produce(Topic("t", ZERO_UUID), batch)
            connection.send(encode_request(1, "bomber", request, PRODUCE_VERSION))
            frame = connection.receive(WAIT_S)
            assert isinstance(frame, bytes), frame
            answer = decode_response(frame, request.api, PRODUCE_VERSION)[1]
            code: int = answer.responses[0].partition_responses[0].error_code  # type: ignore[attr-defined]
            return code

        create = requests.create_topics(requests.creatable("t"))
        connection.send(encode_request(1, "bomber", create, 7))
        connection.receive(WAIT_S)
        assert ask_produce(bytes(build_batch([b"a" * 1000], timestamp=0, codec=codec))) == 0
        before = peak_bytes(broker)
        assert (
            ask_produce(bytes(build_batch([bytes(BOMB_BYTES)], timestamp=0, codec=codec)))
            == ErrorCode.MESSAGE_TOO_LARGE
        )
        assert peak_bytes(broker) - before < MOST_MORE_BYTES
