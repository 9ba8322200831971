"""`ottla produce` and `ottla consume` against a broker: what goes in comes out, in every format."""

import base64
import io
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import ottla.testing
from ottla.cli.main import main
from ottla.client import Admin, NewRecord, NewTopic, Producer

TIME = 1_700_000_000_000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ottla.testing.broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new topic of two partitions, on the broker that the environment names."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP", bootstrap)
    name = f"cli-{uuid.uuid4().hex[:12]}"
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, 2, 1)])
    return name


class Ended(NamedTuple):
    code: int
    out: bytes
    err: str

    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    def run(*arguments: str, given: bytes = b"") -> Ended:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
        code = main(arguments)
        out, err = capfdbinary.readouterr()
        return Ended(code, out, err.decode())

    return run


def all_of(topic: str, *options: str) -> tuple[str, ...]:
    return "consume", topic, "--from-beginning", "--to-end", *options


def test_lines_in_lines_out(run: Run, topic: str) -> None:
    ended = run("produce", topic, "--partition", "1", given="eins\nzwei drei\n\nfünf".encode())
    assert ended == (0, f"4 records written to {topic}\n".encode(), "")
    assert run(*all_of(topic)) == (0, "eins\nzwei drei\n\nfünf\n".encode(), "")


def test_keys_headers_partitions_and_timestamps(run: Run, topic: str) -> None:
    given = b"a:1\nb:2:3\n-:4\nc:-\n"
    options = (
        "--key-separator",
        ":",
        "--null",
        "-",
        "--header",
        "source=test",
        "--header",
        "empty=",
        "--partition",
        "1",
    )
    ended = run("produce", topic, *options, "--timestamp", str(TIME), "--json", given=given)
    assert ended.rows() == [
        *(
            {"type": "record", "topic": topic, "partition": 1, "offset": number, "timestamp": TIME}
            for number in range(4)
        ),
        {"type": "summary", "topic": topic, "records": 4},
    ]
    shown = run(*all_of(topic, "--show", "topic,partition,offset,timestamp,time,headers,key,value", "--null", "NULL"))
    head = f"{topic}\t1\t%d\t{TIME}\t2023-11-14T22:13:20.000Z\tsource=test,empty=\t"
    rest = ("a\t1", "b\t2:3", "NULL\t4", "c\tNULL")
    assert shown.out.decode().splitlines() == [head % offset + cells for offset, cells in enumerate(rest)]
    assert run(*all_of(topic, "--key-separator", ":", "--null", "-")).out == given


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("format", ["json", "hex", "base64"])
def test_what_consume_prints_produce_reads(run: Run, topic: str, bootstrap: str, codec: str, format: str) -> None:
    records = [
        NewRecord(bytes(range(256)), b"\xff\n:", partition=0),
        NewRecord("größer".encode(), b"key", partition=0),
        NewRecord(b"", b"", partition=0),
    ]
    with Producer(bootstrap) as producer:
        producer.send_many(topic, records)
    separator = ("--key-separator", ":") if format != "json" else ()
    printed = run(*all_of(topic, "--format", format, *separator)).out
    copied = run("produce", topic, "--format", format, *separator, "--codec", codec, "--partition", "1", given=printed)
    # In JSON a record names its partition, which comes before the one that is for all.
    partition = 0 if format == "json" else 1
    assert copied.code == 0
    rows = [row for row in run(*all_of(topic, "--json")).rows() if row["partition"] == partition][-3:]
    encoded = base64.b64encode(bytes(range(256))).decode()
    assert [row["value"] for row in rows] == [{"base64": encoded}, "größer", ""]
    assert [row["key"] for row in rows] == [{"base64": "/wo6"}, "key", ""]


def test_json_objects_may_leave_out_all_but_the_value(run: Run, topic: str) -> None:
    given = b"\n".join([
        b'{"value": "plain"}',
        b'{"value": null, "key": null, "headers": {"a": "b", "c": null}, "timestamp": 7, "partition": 0}',
        b'{"value": {"base64": "AAE="}, "headers": [["a", "1"], ["a", {"base64": "/w=="}]]}',
    ])  # fmt: skip
    options = ("--key", "key", "--partition", "1", "--timestamp", str(TIME), "--header", "all=x")
    assert run("produce", topic, "--format", "json", *options, given=given).code == 0
    rows = sorted(run(*all_of(topic, "--json")).rows(), key=lambda row: (row["partition"], row["offset"]))
    assert [(row["partition"], row["timestamp"], row["key"], row["value"], row["headers"]) for row in rows] == [
        (0, 7, None, None, [["a", "b"], ["c", None], ["all", "x"]]),
        (1, TIME, "key", "plain", [["all", "x"]]),
        (1, TIME, "key", "\x00\x01", [["a", "1"], ["a", {"base64": "/w=="}], ["all", "x"]]),
    ]


@pytest.mark.parametrize(
    ("options", "line", "says"),
    [
        (["--key-separator", ":"], b"none", "there is no key separator in it"),
        (["--format", "hex"], b"0g", "it is not hexadecimal"),
        (["--format", "base64"], b"=", "it is not base64"),
        (["--format", "json"], b"{", "it is not JSON"),
        (["--format", "json"], b"[]", 'it is not an object with a "value"'),
        (["--format", "json"], b'{"value": 1}', "value is neither text"),
        (["--format", "json"], b'{"value": "", "kee": ""}', "it has an unknown field 'kee'"),
        (["--format", "json"], b'{"value": "", "partition": "0"}', '"partition" is not a number from 0 on'),
        (["--format", "json"], b'{"value": "", "timestamp": -1}', '"timestamp" is not a number from 0 on'),
        (["--format", "json"], b'{"value": "", "headers": ["a"]}', '"headers" is not a list of [name, value]'),
    ],
)
def test_a_line_that_cannot_be_read_is_named(run: Run, topic: str, options: list[str], line: bytes, says: str) -> None:
    ended = run("produce", topic, *options, given=line)
    assert ended == (1, b"", f"ottla: line 1: {says}{ended.err.partition(says)[2]}")
    assert ended.err.endswith(f"written to {topic} before: 0 records\n")
    assert run(*all_of(topic)).out == b""


def test_files_in_place_of_standard_input(run: Run, topic: str, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text(f"{name}1\n{name}2")
    files = ("--file", str(tmp_path / "a"), "--file", str(tmp_path / "b"))
    assert run("produce", topic, "--partition", "0", *files).code == 0
    assert run(*all_of(topic)).out == b"a1\na2\nb1\nb2\n"
    missing = run("produce", topic, "--file", str(tmp_path / "c"))
    assert missing == (1, b"", f"ottla: {tmp_path / 'c'}: no such file or directory\n")


def test_any_part_of_a_topic(run: Run, topic: str, bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send_many(
            topic, [NewRecord(b"%d" % number, partition=1, timestamp_ms=TIME + 1000 * number) for number in range(20)]
        )
        producer.send(topic, b"other", partition=0)

    def read(*options: str) -> list[int]:
        return [int(line) for line in run("consume", topic, "--partition", "1", *options).out.splitlines()]

    assert read("--offset", "17", "--to-end") == [17, 18, 19]
    assert read("--offset", "3", "--count", "2") == [3, 4]
    assert read("--from-beginning", "--to-offset", "3") == [0, 1, 2]
    assert read("--from-time", str(TIME + 4500), "--to-time", "2023-11-14T22:13:28Z") == [5, 6, 7]
    assert read("--from-time", "1d", "--to-end") == []
    assert read("--to-end") == []
    everything = run("consume", topic, "--partition", "0", "--partition", "1", "--from-beginning", "--to-end").out
    assert sorted(everything.split()) == sorted([b"other", *(b"%d" % number for number in range(20))])


def test_errors_are_one_sentence(run: Run, topic: str, bootstrap: str) -> None:
    for verb in ("produce", "consume"):
        ended = run(verb, "nothing", given=b"x")
        says = "there is no such topic (UNKNOWN_TOPIC_OR_PARTITION): create the topic, or correct its name"
        assert ended == (1, b"", f"ottla: topic nothing: {says}\n")
        ended = run(verb, topic, "--bootstrap", "127.0.0.1:1", given=b"x")
        assert ended == (1, b"", "ottla: cannot reach a broker at 127.0.0.1:1: connection refused\n")
        ended = run(verb, topic, "--bootstrap", "::1", given=b"x")
        assert (ended.code, ended.err.startswith("ottla: --bootstrap: '::1' is no address")) == (2, True)
    ended = run("produce", topic, "--partition", "2", given=b"x")
    assert ended == (1, b"", f"ottla: topic {topic} has no partition 2: it has 2\n")
    ended = run("consume", topic, "--partition", "2")
    assert ended.err.startswith(f"ottla: topic {topic}, partition 2: the topic has 2 partitions")
    ended = run("consume", topic, "--offset", "5")
    assert "offset 5 is not in the partition (OFFSET_OUT_OF_RANGE)" in ended.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["consume", "t", "--offset", "1", "--from-beginning"], "not allowed with argument"),
        (["consume", "t", "--from-time", "yesterday"], "'yesterday' is no time"),
        (["consume", "t", "--show", "key,valve"], "'valve' is none of topic"),
        (["consume", "t", "--count", "0"], "'0' is not a number above 0"),
        (["consume", "t", "--partition", "-1"], "--partition"),
        (["consume", "t", "--timeout", "0"], "'0' is not a number of seconds above 0"),
        (["produce", "t", "--key", "a", "--key-separator", ":"], "not allowed with argument"),
        (["produce", "t", "--key-separator", ""], "a separator has at least one character"),
        (["produce", "t", "--codec", "zip"], "'zip'"),
        (["produce", "t", "--acks", "2"], "'2'"),
        (["produce", "t", "--header", "source"], "'source' is not NAME=VALUE"),
    ],
)
def test_wrong_usage(run: Run, arguments: list[str], says: str) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, b"", 1)
    assert says in ended.err
    assert f"see 'ottla {arguments[0]} --help'" in ended.err


def test_a_slow_pipe_is_written_line_by_line(topic: str) -> None:
    """The second line is given only when the first was read back."""
    program = (sys.executable, "-m", "ottla")
    with (
        subprocess.Popen([*program, "produce", topic], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as producer,
        subprocess.Popen([*program, *all_of(topic)[:3], "--count", "2"], stdout=subprocess.PIPE) as consumer,
    ):
        assert producer.stdin is not None
        assert consumer.stdout is not None
        for line in (b"first\n", b"second\n"):
            producer.stdin.write(line)
            producer.stdin.flush()
            assert consumer.stdout.readline() == line
        producer.stdin.close()
        assert (producer.wait(60), consumer.wait(60)) == (0, 0)


def test_an_interrupt_ends_a_consumer_quietly(topic: str, bootstrap: str) -> None:
    command = [sys.executable, "-m", "ottla", "consume", topic, "--from-beginning"]
    with (
        Producer(bootstrap) as producer,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program,
    ):
        producer.send(topic, b"one")
        assert program.stdout is not None
        assert program.stdout.readline() == b"one\n"
        program.send_signal(signal.SIGINT)
        assert program.communicate(timeout=60) == (b"", b"")
        assert program.returncode == 130


def test_the_terminal_is_not_steered_by_records(topic: str, bootstrap: str) -> None:
    with Producer(bootstrap) as producer:
        producer.send(topic, b"\x1b[2Jred\ttab \xff " + "groß".encode())
    ours, theirs = os.openpty()
    with subprocess.Popen([sys.executable, "-m", "ottla", *all_of(topic)], stdout=theirs) as program:
        assert program.wait(60) == 0
    os.close(theirs)
    assert os.read(ours, 1000) == b"\\x1b[2Jred\ttab \\xff " + "groß".encode() + b"\r\n"
    os.close(ours)
