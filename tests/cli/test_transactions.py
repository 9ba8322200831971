"""`ottla transactions` against a broker, with transactions that are open, over, and hanging."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

import ottla.testing
from ottla.cli.main import main
from ottla.records.build import build_batch
from ottla.testing.local_broker import LocalBroker
from ottla.wire.messages.end_txn import EndTxnRequest
from ottla.wire.messages.init_producer_id import InitProducerIdRequest
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.conformance.script import Script

Captured = pytest.CaptureFixture[str]
LONG_AGO_MS = 1_700_000_000_000


class Client:
    """Transactions by hand, so that one can be left open, or made to hang."""

    def __init__(self, broker: LocalBroker) -> None:
        self._script = Script((broker.host, broker.port), "cli")

    def begin(self, transactional_id: str, partition: int = 0) -> tuple[int, int]:
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        given = self._script.ask(init)
        producer = given.producer_id, given.producer_epoch
        self.write(transactional_id, producer, partition, 12)
        return producer

    def write(self, transactional_id: str, producer: tuple[int, int], partition: int, version: int) -> None:
        batch = build_batch(
            [b"v"],
            timestamp=LONG_AGO_MS,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=0,
            is_transactional=True,
        )
        data = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=batch)])
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[data])
        answer = self._script.ask(request, version)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def commit(self, transactional_id: str, producer: tuple[int, int]) -> None:
        request = EndTxnRequest(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=True
        )
        assert self._script.ask(request).error_code == 0

    def close(self) -> None:
        self._script.__exit__()


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a broker of its own, which the environment names, and which lets transactions hang."""
    settings = {"transaction.partition.verification.enable": "false"}
    with ottla.testing.broker(settings=settings) as broker:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
        assert main(["topics", "create", "t", "--partitions", "2"]) == 0
        client = Client(broker)
        yield client
        client.close()


def run(capsys: Captured, *arguments: str, code: int = 0, says: str = "") -> list[str]:
    capsys.readouterr()
    assert main(["transactions", *arguments]) == code
    out, err = capsys.readouterr()
    assert says in err
    assert bool(err) == bool(says)
    return out.splitlines()


def rows(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "--json")]


def test_transactions_are_listed(client: Client, capsys: Captured) -> None:
    assert run(capsys, "list") == []
    one = client.begin("one")
    client.commit("two", client.begin("two"))
    [heading, *lines] = run(capsys, "list")
    assert heading.split() == ["transactional", "id", "state", "producer", "id", "coordinator", "id"]
    assert [line.split()[:2] for line in lines] == [["one", "Ongoing"], ["two", "CompleteCommit"]]
    assert rows(capsys, "list", "--state", "Ongoing") == [
        {"transactional_id": "one", "state": "Ongoing", "producer_id": one[0], "coordinator_id": 1}
    ]
    assert [row["transactional_id"] for row in rows(capsys, "list", "--producer-id", str(one[0]))] == ["one"]
    assert [row["transactional_id"] for row in rows(capsys, "list", "--pattern", "tw.")] == ["two"]
    assert rows(capsys, "list", "--longer-than", "3600") == []
    run(capsys, "list", "--state", "Odd", code=1, says="there is no state Odd")
    run(capsys, "list", "--pattern", "[", code=1, says="INVALID_REGULAR_EXPRESSION")


def test_transactions_are_described(client: Client, capsys: Captured) -> None:
    producer_id, epoch = client.begin("one", partition=1)
    [row] = rows(capsys, "describe", "one")
    started = row.pop("started")
    assert row == {
        "transactional_id": "one",
        "state": "Ongoing",
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "timeout_ms": 60_000,
        "partitions": ["t-1"],
    }
    lines = run(capsys, "describe", "one", "nobody", code=1, says="transactional id nobody")
    assert lines == [
        "one  Ongoing",
        f"  producer    id {producer_id}, epoch {epoch}",
        "  timeout     60 s",
        f"  started     {started}",
        "  partitions  t-1",
    ]


def test_a_transaction_is_aborted_by_its_id(client: Client, capsys: Captured) -> None:
    client.begin("one")
    assert run(capsys, "abort", "one") == ["one: aborted, its producer is fenced"]
    assert [row["state"] for row in rows(capsys, "list")] == ["Empty"]
    assert rows(capsys, "abort", "one") == [{"transactional_id": "one"}]
    run(capsys, "abort", "nobody", code=1, says="transactional id nobody")
    assert len(run(capsys, "list")) == 2  # it did not come into being


def test_one_that_hangs_is_found_and_aborted(client: Client, capsys: Captured) -> None:
    client.begin("open")
    assert run(capsys, "find-hanging") == []
    client.write("gone", (77, 0), 1, 11)  # its transaction was decided long ago, or never was
    assert rows(capsys, "find-hanging", "t") == [
        {
            "topic": "t",
            "partition": 1,
            "start_offset": 0,
            "producer_id": 77,
            "producer_epoch": 0,
            "last_write": "2023-11-14T22:13:20.000Z",
            "transactional_id": None,
        }
    ]
    place = ("--topic", "t", "--partition", "1", "--start-offset")
    run(capsys, "abort", *place, "5", code=1, says="no transaction is open there since offset 5")
    assert run(capsys, "abort", *place, "0") == ["t-1: the transaction of producer 77 is aborted"]
    assert run(capsys, "find-hanging") == []


@pytest.mark.parametrize(
    "arguments", [[], ["one", "--topic", "t"], ["--topic", "t", "--partition", "0"], ["--start-offset", "0"]]
)
def test_what_to_abort_is_said_in_one_way(capsys: Captured, arguments: list[str]) -> None:
    assert main(["transactions", "abort", *arguments]) == 2
    assert "give an ID, or all of" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["list", "describe", "find-hanging", "abort"])
def test_every_help_has_examples(verb: str, capsys: Captured) -> None:
    lines = run(capsys, verb, "--help")
    assert "examples:" in lines
    assert max(map(len, lines)) <= 100
