"""Reading and writing whole frames: what a request and its answer cost before anybody has done any work."""

from collections.abc import Callable, Iterator
from typing import cast

from bench.report import Result, measure
from ottla.wire.frames import decode_request, decode_response, encode_request, encode_response
from ottla.wire.header import read_request_header
from ottla.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from ottla.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.wire.parts import Buffer, Part
from ottla.wire.reader import compile_reader
from ottla.wire.schema import Request, Response
from ottla.wire.writer import compile_writer

BATCH = memoryview(bytes(16 * 1024))
TOPIC_ID = bytes(range(16))
PRODUCE_VERSION = 12
FETCH_VERSION = 17
MANY = 100
FEW_MICROSECONDS = "< 10"

Measured = tuple[str, Callable[[], object], str]


def produce_request() -> ProduceRequest:
    partition = PartitionProduceData(index=3, records=BATCH)
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def produce_response() -> ProduceResponse:
    partition = PartitionProduceResponse(index=3, error_code=0, base_offset=12_345, log_start_offset=0)
    topic = TopicProduceResponse(name="orders", partition_responses=[partition])
    return ProduceResponse(responses=[topic])


def fetch_request(partitions: int) -> FetchRequest:
    wanted = [
        FetchPartition(partition=number, fetch_offset=12_345, partition_max_bytes=1 << 20)
        for number in range(partitions)
    ]
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=wanted)
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])


def fetch_response(partitions: int) -> FetchResponse:
    found = [
        PartitionData(
            partition_index=number,
            error_code=0,
            high_watermark=12_346,
            aborted_transactions=None,
            records=BATCH,
        )
        for number in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=found)])


def _frame(parts: list[Part]) -> bytes:
    return b"".join(cast(list[Buffer], parts))[4:]


def _request(title: str, version: int, request: Request, target: str) -> Iterator[Measured]:
    frame = _frame(encode_request(7, "bench", request, version))
    yield f"{title} request, read", lambda: decode_request(frame), target
    yield f"{title} request, write", lambda: encode_request(7, "bench", request, version), target


def _response(title: str, version: int, response: Response, target: str) -> Iterator[Measured]:
    frame = _frame(encode_response(7, response, version))
    yield f"{title} response, read", lambda: decode_response(frame, response.api, version), target
    yield f"{title} response, write", lambda: encode_response(7, response, version), target


def _measured() -> Iterator[Measured]:
    frame = _frame(encode_request(7, "bench", produce_request(), PRODUCE_VERSION))
    yield "request header, read", lambda: read_request_header(frame), ""
    yield from _request("Produce 16 KiB", PRODUCE_VERSION, produce_request(), FEW_MICROSECONDS)
    yield from _response("Produce 16 KiB", PRODUCE_VERSION, produce_response(), FEW_MICROSECONDS)
    yield from _request("Fetch, 1 partition", FETCH_VERSION, fetch_request(1), FEW_MICROSECONDS)
    yield from _response("Fetch, 1 partition", FETCH_VERSION, fetch_response(1), FEW_MICROSECONDS)
    yield from _request(f"Fetch, {MANY} partitions", FETCH_VERSION, fetch_request(MANY), "")
    yield from _response(f"Fetch, {MANY} partitions", FETCH_VERSION, fetch_response(MANY), "")
    yield "Fetch reader, compile", lambda: compile_reader(FetchRequest, FETCH_VERSION), ""
    yield "Fetch writer, compile", lambda: compile_writer(FetchResponse, FETCH_VERSION), ""


def run(quick: bool) -> list[Result]:
    repeats = 5 if quick else 21
    return [
        Result.of(name, measure(function, repeats=repeats), "us", target, scale=1e6)
        for name, function, target in _measured()
    ]
