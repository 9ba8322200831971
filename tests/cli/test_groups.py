"""`ottla groups` against a broker."""

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import ottla.testing
from ottla.broker.metrics import exposition
from ottla.cli import progress
from ottla.cli.main import main
from ottla.client import Admin, Consumer, NewRecord, Offset, Producer, TopicPartition
from ottla.testing.local_broker import LocalBroker
from tests.client.admin_groups_contract import Abort
from tests.client.consumer_contract import QUICK, members
from tests.client.contract import eventually

Captured = pytest.CaptureFixture[str]
TIME = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    """A broker of the test's own, which the environment names, with a topic of two partitions."""
    with ottla.testing.broker() as broker:
        monkeypatch.setenv("OTTLA_BOOTSTRAP", broker.bootstrap)
        broker.topic("orders", partitions=2, config={"retention.ms": "-1"})
        yield broker


def run(capsys: Captured, *arguments: str, code: int = 0, says: str = "") -> list[str]:
    """The lines that a command prints; `says` must be among what it complains of."""
    capsys.readouterr()
    assert main(["groups", *arguments]) == code
    out, err = capsys.readouterr()
    assert says in err
    assert bool(err) == bool(says), err
    return out.splitlines()


def rows(capsys: Captured, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run(capsys, *arguments, "--json")]


def write(broker: LocalBroker, count: int, partition: int = 0) -> None:
    """A record each hour."""
    with Producer(broker.bootstrap) as producer:
        records = [NewRecord(b"v", partition=partition, timestamp_ms=TIME + n * 3_600_000) for n in range(count)]
        producer.send_many("orders", records)


def commit(broker: LocalBroker, group: str, *offsets: int) -> None:
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(group, {TopicPartition("orders", n): offset for n, offset in enumerate(offsets)})


def committed(broker: LocalBroker, group: str) -> dict[int, int]:
    with Admin(broker.bootstrap) as admin:
        return {place.partition: offset.offset for place, offset in admin.list_group_offsets(group).items()}


# Looking.


def test_groups_are_listed(broker: LocalBroker, capsys: Captured) -> None:
    assert run(capsys, "list") == []
    commit(broker, "billing", 0)
    with members() as running:
        running.start(lambda: Consumer(broker.bootstrap, "orders", group="new", group_protocol="consumer", **QUICK))
        eventually(running.sizes, [2].__eq__)
        assert run(capsys, "list") == [
            "group    type      state   coordinator",
            "billing  classic   Empty             1",
            "new      consumer  Stable            1",
        ]
        assert rows(capsys, "list", "--type", "Classic") == [
            {"group": "billing", "type": "classic", "state": "Empty", "coordinator": 1}
        ]
        assert [row["group"] for row in rows(capsys, "list", "--state", "stable", "--state", "Dead")] == ["new"]


def test_offsets_and_lag_are_described(broker: LocalBroker, capsys: Captured) -> None:
    write(broker, 5)
    commit(broker, "billing", 2)
    assert run(capsys, "describe", "billing") == [
        "billing  classic  Empty  0 members  3 records behind",
        "  topic   partition  committed offset  end offset  lag  member  host",
        "  orders          0                 2           5    3  -       -",
        "",
    ]
    [row] = rows(capsys, "describe")
    assert row == {
        "group": "billing",
        "type": "classic",
        "state": "Empty",
        "member_count": 0,
        "lag": 3,
        "lag_in": "records",
        "offsets": [
            {
                "topic": "orders",
                "partition": 0,
                "committed_offset": 2,
                "end_offset": 5,
                "lag": 3,
                "metadata": "",
                "member": None,
                "host": None,
            }
        ],
    }
    run(
        capsys, "describe", "nobody", code=1, says="group nobody: Group nobody not found. (GROUP_ID_NOT_FOUND): correct"
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_and_state_are_described(broker: LocalBroker, capsys: Captured, protocol: str) -> None:
    write(broker, 1)
    options: dict[str, Any] = {"group": "g", "group_protocol": protocol, "instance_id": "i", **QUICK}
    with members() as running:
        running.start(lambda: Consumer(broker.bootstrap, "orders", auto_commit=False, **options))
        eventually(running.sizes, [2].__eq__)
        [row] = eventually(lambda: rows(capsys, "describe", "--members", "--state", "g"), lambda r: _is_stable(r[0]))
        [member] = row["members"]
        assert member["partitions"] == member["target"] == {"orders": [0, 1]}
        assert member["topics"] == ["orders"]
        assert (member["client"], member["instance"], member["host"]) == ("ottla", "i", "127.0.0.1")
        assert "offsets" not in row
        lines = run(capsys, "describe", "g", "--members", "--state", "--offsets")
        epochs = "" if protocol == "classic" else f", epoch {row['epoch']}, assigned in {row['assignment_epoch']}"
        assert lines[:2] == [
            f"g  {protocol}  Stable  1 member  0 records behind",
            f"  coordinator 1, assignor {row['assignor']}{epochs}",
        ]
        # What is read without a commit so far has no lag yet.
        assert lines[3].split() == ["orders", "0", "-", "1", "-", member["member"], "127.0.0.1"]
        assert lines[5].split() == ["member", "instance", "client", "host", "subscribes", "to", "reads"]
        assert lines[6].split() == [member["member"], "i", "ottla", "127.0.0.1", "orders", "orders:0,1"]


def _is_stable(row: dict[str, Any]) -> bool:
    return bool(row["state"] == "Stable" and row["members"][0]["partitions"])


def test_the_lag_is_that_of_the_metrics(broker: LocalBroker, capsys: Captured) -> None:
    """Whatever offset is committed, and with transactions that were committed, aborted and are open."""
    write(broker, 3)
    with Producer(broker.bootstrap, transactional_id="t") as producer:
        for aborts in (True, False, True):
            with suppress(Abort), producer.transaction():
                producer.send_many("orders", [NewRecord(b"v", partition=number % 2) for number in range(6)])
                if aborts:
                    raise Abort
        with producer.transaction():
            producer.send("orders", b"open", partition=1).result()
            for offset in range(16):
                commit(broker, "g", offset, 15 - offset)
                lags = {lag.partition: lag.records for lag in broker.call(lambda broker: broker.lags.of_group("g"))}
                [row] = rows(capsys, "describe", "g")
                assert {one["partition"]: one["lag"] for one in row["offsets"]} == lags
                assert row["lag"] == sum(lags.values())
                for partition, lag in lags.items():
                    line = f'ottla_group_lag{{group="g",topic="orders",partition="{partition}"}} {lag}'
                    assert line in broker.call(exposition).splitlines()


def test_the_fast_way_shows_offsets_and_says_so(broker: LocalBroker, capsys: Captured) -> None:
    with Producer(broker.bootstrap, transactional_id="t") as producer, producer.transaction():
        producer.send("orders", b"v", partition=0)
    commit(broker, "g", 0)
    assert run(capsys, "describe", "g")[0] == "g  classic  Empty  0 members  1 record behind"
    lines = run(capsys, "describe", "g", "--fast")
    assert lines[0] == "g  classic  Empty  0 members  2 offsets behind"
    assert "  lag in offsets  " in lines[1]
    assert [(row["lag"], row["lag_in"]) for row in rows(capsys, "describe", "g", "--fast")] == [(2, "offsets")]


def test_progress_is_shown_on_a_terminal(
    broker: LocalBroker, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(StringIO):
        def isatty(self) -> bool:
            return True

    write(broker, 5)
    commit(broker, "g", 1)
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(progress, "SHOWN_AFTER_SECONDS", 0)
    assert main(["groups", "describe", "g"]) == 0
    assert isinstance(sys.stderr, Terminal)
    assert sys.stderr.getvalue() == "\r\x1b[K100 %  counted orders-0\r\x1b[K"


# Deleting.


def test_groups_are_deleted(broker: LocalBroker, capsys: Captured) -> None:
    commit(broker, "one", 0)
    commit(broker, "two", 0)
    says = "ottla: group three: There is no such group. (GROUP_ID_NOT_FOUND): correct the name"
    assert run(capsys, "delete", "one", "three", code=1, says=says) == ["one: deleted"]
    assert rows(capsys, "delete", "two", "three", "--if-exists") == [{"group": "two"}]
    assert run(capsys, "list") == []


def test_some_offsets_are_deleted(broker: LocalBroker, capsys: Captured) -> None:
    commit(broker, "g", 5, 7)
    assert run(capsys, "delete", "g", "--topic", "orders:0") == ["g: orders-0: deleted"]
    assert committed(broker, "g") == {1: 7}
    assert rows(capsys, "delete", "g", "--topic", "orders") == [
        {"group": "g", "topic": "orders", "partition": 0},
        {"group": "g", "topic": "orders", "partition": 1},
    ]
    run(capsys, "delete", "nobody", "--topic", "orders", code=1, says="GROUP_ID_NOT_FOUND")
    run(capsys, "delete", "g", "--topic", "none", code=1, says="topic none: there is no such topic")


def test_a_group_at_work_is_left_alone(broker: LocalBroker, capsys: Captured) -> None:
    write(broker, 2)
    with members() as running:
        running.start(lambda: Consumer(broker.bootstrap, "orders", group="g", **QUICK))
        eventually(running.sizes, [2].__eq__)
        run(capsys, "delete", "g", code=1, says="(NON_EMPTY_GROUP): stop the members of the group")
        reset = ("reset-offsets", "g", "--topic", "orders", "--to-offset", "1")
        says = "ottla: group g has 1 member (ottla on 127.0.0.1): stop them"
        run(capsys, *reset, "--execute", code=1, says=f"{says} first")
        lines = run(capsys, *reset, says=f"{says} before you give --execute")
        assert len(lines) == 4
    run(capsys, *reset, "--execute")
    assert committed(broker, "g") == {0: 1, 1: 0}


# Moving offsets.


def test_nothing_is_done_without_execute(broker: LocalBroker, capsys: Captured) -> None:
    write(broker, 5)
    commit(broker, "g", 2)
    reset = ("reset-offsets", "g", "--topic", "orders", "--to-earliest")
    table = [
        "topic   partition  committed offset  new offset",
        "orders          0                 2           0",
        "orders          1                 -           0",
    ]
    would = "2 offsets of group g would be set; nothing is changed without --execute"
    assert run(capsys, *reset) == [*table, would]
    assert run(capsys, *reset, "--dry-run") == [*table, would]
    assert committed(broker, "g") == {0: 2}
    assert run(capsys, *reset, "--execute") == [*table, "2 offsets of group g set"]
    assert committed(broker, "g") == {0: 0, 1: 0}


WHERES = (
    (["--to-earliest"], 0),
    (["--to-latest"], 10),
    (["--to-offset", "7"], 7),
    (["--to-offset", "700"], 10),
    (["--to-current"], 4),
    (["--shift-by", "2"], 6),
    (["--shift-by", "-3"], 1),
    (["--shift-by", "-30"], 0),
    (["--to-datetime", "2026-01-31T15:00:00Z"], 3),
    (["--to-datetime", "2026-01-31T15:00:01+00:00"], 4),
    (["--to-datetime", str(TIME)], 0),
    (["--to-datetime", "2100-01-01T00:00:00Z"], 10),
    (["--by-duration", "36500d"], 0),
    (["--by-duration", "PT0.001S"], 10),
)


def test_where_offsets_can_go(broker: LocalBroker, capsys: Captured) -> None:
    write(broker, 10)
    for where, expected in WHERES:
        commit(broker, "g", 4)
        [row] = rows(capsys, "reset-offsets", "g", "--all-topics", *where, "--execute")
        assert (row["committed_offset"], row["new_offset"], row["is_done"]) == (4, expected, True), where
        assert committed(broker, "g") == {0: expected}, where


def test_an_offset_outside_of_the_partition_is_told(broker: LocalBroker, capsys: Captured) -> None:
    write(broker, 3)
    commit(broker, "g", 1, 0)
    lines = run(capsys, "reset-offsets", "g", "--topic", "orders", "--to-offset", "2")
    assert lines[1].endswith("  -")
    assert lines[2].endswith("2 is behind the end")
    notes = [row["note"] for row in rows(capsys, "reset-offsets", "g", "--topic", "orders:0", "--shift-by", "-2")]
    assert notes == ["-1 is before the start"]


def test_latest_is_what_comes_from_now_on(broker: LocalBroker, capsys: Captured) -> None:
    """What an open transaction has written, a consumer has yet to see."""
    commit(broker, "g", 0)
    with Producer(broker.bootstrap, transactional_id="t") as producer:
        with producer.transaction():
            producer.send("orders", b"open", partition=0).result()
            [row] = rows(capsys, "reset-offsets", "g", "--all-topics", "--to-latest")
            assert row["new_offset"] == 0
        [row] = rows(capsys, "reset-offsets", "g", "--all-topics", "--to-latest")
        assert row["new_offset"] == 2


def test_offsets_go_to_a_file_and_back(
    broker: LocalBroker, capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(broker, 9)
    commit(broker, "g", 4, 0)
    lines = run(capsys, "reset-offsets", "g", "--all-topics", "--to-current", "--export")
    assert lines == ["orders,0,4", "orders,1,0"]
    file = tmp_path / "offsets.csv"
    file.write_text("\n".join(lines))
    commit(broker, "g", 9, 0)
    run(capsys, "reset-offsets", "g", "--from-file", str(file), "--execute")
    assert committed(broker, "g") == {0: 4, 1: 0}
    monkeypatch.setattr(sys, "stdin", StringIO('"g","orders",0,1\nother,orders,0,2\n\n'))  # as Kafka's tool writes
    [row] = rows(capsys, "reset-offsets", "g", "--from-file", "-", "--execute")
    assert (row["partition"], row["new_offset"]) == (0, 1)


WRONG_FILES = (
    ("orders,0", "line 1: not topic,partition,offset"),
    ("orders,0,1\norders,1,-1\n", "line 2: not topic,partition,offset"),
    ("", "has no offsets of group g"),
    ("other,orders,0,1", "has no offsets of group g"),
    ("nothing,0,1", "topic nothing: there is no such topic"),
    ("orders,7,1", "topic orders, partition 7: the topic has 2 partitions"),
)


def test_files_that_say_nothing(broker: LocalBroker, capsys: Captured, tmp_path: Path) -> None:
    commit(broker, "g", 0)
    file = tmp_path / "offsets.csv"
    for content, says in WRONG_FILES:
        file.write_text(content)
        run(capsys, "reset-offsets", "g", "--from-file", str(file), "--execute", code=1, says=says)


def test_a_group_can_be_begun(broker: LocalBroker, capsys: Captured) -> None:
    write(broker, 3)
    reset = ("reset-offsets", "new", "--topic", "orders:0", "--to-latest", "--execute")
    run(capsys, *reset, code=1, says="there is no group new: see 'ottla groups list', or give --create")
    run(capsys, *reset, "--create")
    assert committed(broker, "new") == {0: 3}


def test_what_cannot_be_done_names_the_fix(broker: LocalBroker, capsys: Captured, tmp_path: Path) -> None:
    commit(broker, "g", 0)
    reset = ("reset-offsets", "g")
    run(
        capsys,
        *reset,
        "--topic",
        "none",
        "--to-latest",
        code=1,
        says="no such topic (UNKNOWN_TOPIC_OR_PARTITION): create",
    )
    run(capsys, *reset, "--topic", "orders:5", "--to-latest", code=1, says="partition 5: the topic has 2 partitions")
    run(
        capsys, *reset, "--topic", "orders", "--shift-by", "1", code=1, says="nothing of orders-1 that could be shifted"
    )
    run(capsys, *reset, "--topic", "orders:1", "--to-current", code=1, says="name topics with --topic")
    missing = str(tmp_path / "missing")
    run(capsys, *reset, "--from-file", missing, code=1, says=f"ottla: {missing}: no such file")


def test_a_commit_keeps_no_metadata_of_another(broker: LocalBroker, capsys: Captured) -> None:
    place = TopicPartition("orders", 0)
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets("g", {place: Offset(0, "mine")})
        assert rows(capsys, "describe", "g")[0]["offsets"][0]["metadata"] == "mine"
        run(capsys, "reset-offsets", "g", "--all-topics", "--to-earliest", "--execute")
        assert admin.list_group_offsets("g") == {place: Offset(0)}


# Usage.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "VERB; see 'ottla groups --help'"),
        (["list", "--state", "Odd"], "'Odd' is none of PreparingRebalance, "),
        (["list", "--type", "odd"], "'odd' is none of classic, consumer"),
        (["delete"], "GROUP; see 'ottla groups delete --help'"),
        (["delete", "a", "b", "--topic", "t"], "--topic goes with one GROUP"),
        (["reset-offsets", "g", "--topic", "t"], "--to-earliest"),
        (["reset-offsets", "g", "--to-earliest"], "say which offsets: --topic, --all-topics or --from-file"),
        (["reset-offsets", "g", "--from-file", "f", "--all-topics"], "--from-file says which offsets"),
        (["reset-offsets", "g", "--all-topics", "--topic", "t", "--to-latest"], "not allowed with argument"),
        (["reset-offsets", "g", "--all-topics", "--to-latest", "--to-earliest"], "not allowed with argument"),
        (["reset-offsets", "g", "--topic", "t:", "--to-latest"], "'t:' is not TOPIC or TOPIC:N,N"),
        (["reset-offsets", "g", "--topic", ":1", "--to-latest"], "':1' is not TOPIC or TOPIC:N,N"),
        (["reset-offsets", "g", "--all-topics", "--by-duration", "P"], "'P' is no duration"),
        (["reset-offsets", "g", "--all-topics", "--by-duration", "soon"], "'soon' is no duration"),
        (["reset-offsets", "g", "--all-topics", "--to-offset", "-1"], "--to-offset"),
        (["reset-offsets", "g", "--all-topics", "--to-latest", "--execute", "--export"], "not allowed with argument"),
    ],
)
def test_wrong_usage(capsys: Captured, arguments: list[str], says: str) -> None:
    run(capsys, *arguments, code=2, says=says)


@pytest.mark.parametrize(
    ("text", "length_ms"),
    [
        ("5ms", 5),
        ("90s", 90_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2S", 86_402_000),
    ],
)
def test_durations(text: str, length_ms: int) -> None:
    from ottla.cli.groups import duration_ms

    assert duration_ms(text) == length_ms


@pytest.mark.parametrize("verb", ["list", "describe", "delete", "reset-offsets"])
def test_every_help_has_examples(verb: str, capsys: Captured) -> None:
    lines = run(capsys, verb, "--help")
    assert "examples:" in lines
    assert max(map(len, lines)) <= 100
