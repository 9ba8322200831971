"""The oracle's own tools: what they hide, and that they hide nothing else."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.wire.messages.init_producer_id import InitProducerIdResponse
from ottla.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from ottla.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance import answers
from tests.conformance.answers import difference
from tests.conformance.batches import plain
from tests.conformance.exchange import Exchanges
from tests.conformance.masks import ANOTHER_PRODUCER, UNKNOWN_ID, masked_id, masked_number, masked_text
from tests.conformance.rendered_records import rendered_records
from tests.conformance.rendering import Json, Rendering, pretty
from tests.conformance.script import Script

TOKEN = "0a1b2c3d"
NOW_MS = int(time.time() * 1000)

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(values)
def test_pretty_is_json_of_the_same_value(value: Json) -> None:
    assert json.loads(pretty(value)) == value


@given(values, values)
def test_a_difference_is_told_where_there_is_one(left: Json, right: Json) -> None:
    assert (difference(left, right) == "") == (left == right)


@pytest.mark.parametrize(
    ("field", "text", "shown"),
    [
        ("name", f"topic-{TOKEN}", "topic"),
        ("error_message", f"Topic 'a-{TOKEN}' already exists.", "Topic 'a' already exists."),
        ("error_message", f"not within [{NOW_MS}, 5]", "not within [<now>, 5]"),
        ("error_message", f"at least {NOW_MS - 2**63 + 1}", "at least <now - 2^63 + 1>"),
        ("value", "/var/lib/kafka/data", "<folder>"),
        ("value", "PLAINTEXT://127.0.0.1:9092", "PLAINTEXT://127.0.0.1:<port>"),
        ("name", "a/b", "a/b"),
        ("name", "../a", "../a"),
        ("cluster_id", "MkU3OEVBNTcwNTJENDM2Qg", "<cluster id>"),
    ],
    ids=itertools.count(),
)
def test_what_is_hidden_in_text(field: str, text: str, shown: str) -> None:
    assert masked_text(field, text, TOKEN) == shown


@pytest.mark.parametrize(
    ("field", "number", "shown"),
    [
        ("timestamp", NOW_MS, "<now>"),
        ("timestamp", 1_700_000_000_000, 1_700_000_000_000),
        ("session_id", 0, 0),
        ("session_id", 77, "<session id>"),
        ("total_bytes", -1, -1),
        ("total_bytes", 5, "<size>"),
        ("error_code", 35, 35),
    ],
    ids=itertools.count(),
)
def test_what_is_hidden_of_numbers(field: str, number: int, shown: int | str) -> None:
    assert masked_number(field, number) == shown


def test_ids_are_shown_by_what_they_are() -> None:
    known = b"k" * 16
    shown = [masked_id(topic_id, {known: "topic"}) for topic_id in (bytes(16), UNKNOWN_ID, known, b"x" * 16)]
    assert shown == ["zero", "unknown", "<id of topic>", "<id>"]


def test_only_the_fields_of_the_version_are_shown() -> None:
    broker = MetadataResponseBroker(node_id=1, host="127.0.0.1", port=9092)
    response = MetadataResponse(brokers=[broker], topics=[], controller_id=7)
    shown = {"brokers": [{"node_id": 1, "host": "127.0.0.1", "port": "<port>"}]}
    assert Rendering(TOKEN).response(response, 0) == shown
    assert Rendering(TOKEN).response(response, 1) == shown | {"controller_id": 7}


def test_what_is_as_declared_is_left_out_and_null_is_not_empty() -> None:
    def shown(transactional_id: str | None) -> Json:
        request = ProduceRequest(transactional_id=transactional_id, acks=0, timeout_ms=0, topic_data=[])
        return Rendering(TOKEN).request(request, 9)

    assert shown(None) == {}  # null is its default
    assert shown("") == {"transactional_id": ""}
    empty = PartitionProduceData(index=0, records=b"")
    nothing = PartitionProduceData(index=1, records=None)
    topic = TopicProduceData(name="t", partition_data=[empty, nothing])
    request = ProduceRequest(acks=-1, timeout_ms=5, topic_data=[topic])
    assert Rendering(TOKEN).request(request, 9) == {
        "acks": -1,
        "timeout_ms": 5,
        "topic_data": [{"name": "t", "partition_data": [{}, {"index": 1, "records": None}]}],
    }


def test_a_list_that_nothing_is_left_of_is_as_one_that_was_empty() -> None:
    listed = [ListedGroup(group_id="theirs", protocol_type="consumer")]
    for groups in ([], listed):
        assert Rendering(TOKEN).response(ListGroupsResponse(error_code=0, groups=groups), 0, ["ours"]) == {}


@pytest.mark.parametrize("producer_id", [0, 7])
def test_a_masked_number_is_shown_also_where_it_is_the_default(producer_id: int) -> None:
    rendering = Rendering(TOKEN)
    answer = InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=0)
    rendering.learn(answer, "main")
    request = EndTxnRequest(transactional_id="t", producer_id=producer_id, producer_epoch=0, committed=True)
    assert rendering.request(request, 0)["producer_id"] == "<producer 1>"
    request = EndTxnRequest(
        transactional_id="t", producer_id=producer_id + ANOTHER_PRODUCER, producer_epoch=0, committed=True
    )
    assert rendering.request(request, 0)["producer_id"] == "another than <producer 1>"


def test_what_is_long_in_a_request_is_shortened() -> None:
    topics = [MetadataRequestTopic(name=f"{number}" * 300) for number in range(9)] * 3
    shown = Rendering(TOKEN).request(MetadataRequest(topics=topics), 9)["topics"]
    assert len(shown) == 21
    assert shown[-1] == "... (27 in all)"
    assert shown[2]["name"] == "2" * 20 + "... (300 characters)"


def test_a_broken_batch_is_shown_with_its_header() -> None:
    batch = plain(1)
    batch[-1] ^= 1
    [shown] = rendered_records(memoryview(batch), masked_number)
    assert shown["count"] == 1
    assert shown["corrupt"].startswith("checksum")
    assert rendered_records(memoryview(bytes(70)), masked_number) == ["70 bytes that are no batch"]


def test_answers_are_kept_a_line_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "FOLDER", tmp_path)
    steps = [{"ask": "Produce 3", "request": {"acks": 1}, "answer": {"error_code": n}} for n in (1, 2)]
    kept = {"one": {"apis": ["Produce"], "steps": steps}, "two": {"apis": [], "steps": []}}
    answers.write_answers("group", kept)
    assert answers.read_answers("group") == kept
    text = (tmp_path / "group.json").read_text(encoding="utf-8")
    assert text.count('"ask"') == sum('"ask"' in line for line in text.splitlines())


def joined(member_id: str, *members: JoinGroupResponseMember) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=0, protocol_name="", leader="", member_id=member_id, members=list(members))


def partition_of(index: int, records: bytes) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=0, high_watermark=3, aborted_transactions=None, records=memoryview(records)
    )


def test_entries_of_a_topic_are_one_and_its_partitions_in_order() -> None:
    entries = [FetchableTopicResponse(topic="t", partitions=[partition_of(index, b"")]) for index in (10, 2)]
    [shown] = Rendering(TOKEN).response(FetchResponse(responses=entries), 4)["responses"]
    assert [partition["partition_index"] for partition in shown["partitions"]] == [2, 10]


def test_records_are_shown_with_what_is_left_of_a_batch() -> None:
    batch = bytes(plain(1))
    entry = FetchableTopicResponse(topic="t", partitions=[partition_of(0, batch + batch[:30])])
    [shown] = Rendering(TOKEN).response(FetchResponse(responses=[entry]), 4)["responses"]
    [first, rest] = shown["partitions"][0]["records"]
    assert first["records"] == [[0, 1_700_000_000_000, "key", "value 0"]]
    assert rest == "30 bytes of another batch"


def test_what_a_broker_makes_up_is_shown_by_who_got_it_first() -> None:
    rendering = Rendering(TOKEN)
    first, second = str(uuid.UUID(int=1)), str(uuid.UUID(int=2))
    answers = [joined(f"client-{member_id}") for member_id in (first, second, first)]
    shown = []
    for answer in answers:
        rendering.learn(answer, "a")
        shown.append(rendering.response(answer, 0)["member_id"])
    assert shown == ["client-<a>", "client-<a 2>", "client-<a>"]
    assert Rendering(TOKEN).response(answers[0], 0)["member_id"] == "client-<uuid>"


@pytest.mark.parametrize("member_id", ["nobody", f"member-{TOKEN}", "x" * 13 + f"-{TOKEN}"])
def test_what_a_client_makes_up_is_shown_as_it_is(member_id: str) -> None:
    rendering = Rendering(TOKEN)
    rendering.learn(joined(member_id), "a")
    assert rendering.response(joined(member_id), 0)["member_id"] == member_id.removesuffix(f"-{TOKEN}")


def test_members_see_what_others_say_of_themselves_as_text() -> None:
    member = JoinGroupResponseMember(member_id="m", metadata=b"for topic-0a1b2c3d\xff")
    [shown] = Rendering(TOKEN).response(joined("m", member), 0)["members"]
    assert shown["metadata"] == "for topic\\xff"


def test_producers_are_shown_by_their_order_where_a_broker_gave_their_id() -> None:
    rendering = Rendering(TOKEN)
    answers = [InitProducerIdResponse(error_code=0, producer_id=number, producer_epoch=0) for number in (7000, 9, 7000)]
    for answer in answers:
        rendering.learn(answer, "main")
    assert [rendering.response(answer, 0)["producer_id"] for answer in answers] == [
        "<producer 1>",
        "<producer 2>",
        "<producer 1>",
    ]
    another = InitProducerIdResponse(error_code=0, producer_id=501, producer_epoch=0)
    assert rendering.response(another, 0)["producer_id"] == 501


def test_control_batches_are_shown() -> None:
    entry = FetchableTopicResponse(topic="t", partitions=[partition_of(0, bytes(plain(1, is_control=True)))])
    [shown] = Rendering(TOKEN).response(FetchResponse(responses=[entry]), 4)["responses"]
    assert len(shown["partitions"][0]["records"]) == 1


def test_a_table_makes_an_exchange_a_row_and_no_name_twice() -> None:
    exchanges = Exchanges("group")

    def ask(script: Script, number: int) -> None:
        raise AssertionError("not run")

    exchanges.cases({"one": 1, "two": 2})(ask)
    assert [exchange.full_name for exchange in exchanges.all] == ["group: ask: one", "group: ask: two"]
    with pytest.raises(ValueError, match="two exchanges are called group: ask: one"):
        exchanges.cases({"one": 1})(ask)
