"""The mirror between two brokers: everything kept, exactly once, and what is told rather than guessed."""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla import testing
from ottla.client import (
    Admin,
    ClientOptions,
    ConfigChange,
    ConfigOperation,
    NewRecord,
    NewTopic,
    Offset,
    Producer,
    Resource,
    ResourceKind,
    TopicPartition,
)
from ottla.connect.configuration import ConfigurationRefused
from ottla.connect.mirror.configuration import load_mirror
from ottla.connect.positions import Positions
from ottla.connect.topics import topic_exists
from tests.connect.mirror.mirroring import failed_with, mirroring, status_of
from tests.connect.running import records_of, until, values_of


@pytest.fixture
def eu() -> Iterator[str]:
    with testing.broker() as broker:
        yield broker.bootstrap


@pytest.fixture
def us() -> Iterator[str]:
    with testing.broker() as broker:
        yield broker.bootstrap


def create(bootstrap: str, name: str, partitions: int = 1, **configs: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions, configs={k.replace("_", "."): v for k, v in configs.items()})])


def send(bootstrap: str, topic: str, *values: str, **options: Any) -> None:
    with Producer(bootstrap, **options) as producer:
        producer.send_many(topic, [value.encode() for value in values])


def copied(bootstrap: str, topic: str, count: int) -> list[bytes]:
    until(lambda: len(values_of(bootstrap, topic)) >= count)
    return values_of(bootstrap, topic)


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_all_of_a_record_is_kept(eu: str, us: str, tmp_path: Path, codec: str) -> None:
    create(eu, "orders", 3, retention_ms="12345678", cleanup_policy="delete")
    sent = [
        NewRecord(f"v{number}".encode(), f"k{number}".encode(), [("h", b"x"), ("n", None)], number % 3, 1000 + number)
        for number in range(300)
    ]
    with Producer(eu, codec=codec) as producer:
        producer.send_many("orders", sent)
    with mirroring(tmp_path, eu, us, ["ord.*"]):
        copied(us, "orders", 300)
    for original, copy in zip(records_of(eu, "orders"), records_of(us, "orders"), strict=True):
        assert (copy.key, copy.value, copy.headers, copy.timestamp) == (
            original.key,
            original.value,
            original.headers,
            original.timestamp,
        )
    with Admin(us) as admin:
        assert len(admin.describe_topics(["orders"])[0].partitions) == 3
        [described] = admin.describe_configs([Resource(ResourceKind.TOPIC, "orders")], ["retention.ms"])
        assert described.entries[0].value == "12345678"


def test_new_topics_partitions_and_configurations_follow(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders")
    with mirroring(tmp_path, eu, us, ["orders", "later-.*"], exclude=["later-not"], prefix="eu."):
        send(eu, "orders", "a")
        copied(us, "eu.orders", 1)
        create(eu, "later-1", 2)
        create(eu, "later-not")
        send(eu, "later-1", "b", "c")
        assert sorted(copied(us, "eu.later-1", 2)) == [b"b", b"c"]
        with Admin(eu) as admin:
            admin.expand_topics({"orders": 4})
            resource = Resource(ResourceKind.TOPIC, "orders")
            admin.alter_configs(resource, [ConfigChange("max.message.bytes", ConfigOperation.SET, "2000000")])
        with Producer(eu) as producer:
            producer.send_many("orders", [NewRecord(b"d", partition=3)])
        assert copied(us, "eu.orders", 2) == [b"a", b"d"]
        with Admin(us) as admin:
            assert len(admin.describe_topics(["eu.orders"])[0].partitions) == 4
            wanted = Resource(ResourceKind.TOPIC, "eu.orders"), ["max.message.bytes"]
            until(lambda: admin.describe_configs([wanted[0]], wanted[1])[0].entries[0].value == "2000000")
            assert "eu.later-not" not in {topic.name for topic in admin.list_topics()}


def test_timestamps_are_kept_whoever_has_set_them(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "stamped", message_timestamp_type="LogAppendTime")
    create(eu, "limited", message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="1000")
    for topic in ("stamped", "limited"):
        send(eu, topic, "a")
    sent_at = max(record.timestamp for topic in ("stamped", "limited") for record in records_of(eu, topic))
    until(lambda: time.time() * 1000 > sent_at + 1500)
    with mirroring(tmp_path, eu, us, ["stamped", "limited"]):
        for topic in ("stamped", "limited"):
            copied(us, topic, 1)
            assert [each.timestamp for each in records_of(us, topic)] == [
                each.timestamp for each in records_of(eu, topic)
            ]


def test_a_mirror_goes_on_where_it_was(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders", 2)
    for turn in range(3):
        with mirroring(tmp_path, eu, us, ["orders"], tasks=2):
            send(eu, "orders", *(f"{turn}-{number}" for number in range(50)))
            copied(us, "orders", 50 * (turn + 1))
    assert sorted(values_of(us, "orders")) == sorted(values_of(eu, "orders"))


def test_aborted_records_stay_behind_and_gaps_are_closed(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders")
    with Producer(eu, transactional_id="t") as producer:
        for number in range(4):
            with contextlib.suppress(ZeroDivisionError), producer.transaction():
                producer.send_many("orders", [f"{number}".encode()])
                _ = 1 // (1 - number % 2)  # every second one is aborted
    with mirroring(tmp_path, eu, us, ["orders"]):
        assert copied(us, "orders", 2) == [b"0", b"2"]


def test_a_batch_that_the_target_finds_too_large_is_cut(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders")
    create(us, "orders")
    send(eu, "orders", *("x" * 20_000 for _ in range(30)), linger_ms=100)
    with Admin(eu) as admin:  # what is there already stays as large
        change = ConfigChange("max.message.bytes", ConfigOperation.SET, "100000")
        admin.alter_configs(Resource(ResourceKind.TOPIC, "orders"), [change])
    with mirroring(tmp_path, eu, us, ["orders"]):
        assert len(copied(us, "orders", 30)) == 30


def test_groups_go_on_in_the_copy(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders", 2)
    with Producer(eu) as producer:
        for number in range(10):
            producer.send_many("orders", [NewRecord(f"{number}".encode(), partition=number % 2)])
    with Admin(eu) as here, Admin(us) as there:
        here.alter_group_offsets("billing", {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 5})
        here.alter_group_offsets("other", {TopicPartition("orders", 0): 3})
        with mirroring(tmp_path, eu, us, ["orders"], groups=["bill.*"]):
            copied(us, "orders", 10)
            offsets = until(lambda: len(found := there.list_group_offsets("billing")) == 2 and found)
            read = {place.partition: offset.offset for place, offset in offsets.items()}
            before = [record for record in records_of(us, "orders") if record.value in (b"0", b"2", b"4")]
            assert read[0] == before[-1].offset + 1
            assert {TopicPartition("orders", 0), TopicPartition("orders", 1)} <= set(
                until(lambda: here.list_group_offsets("mirror-mirror"))
            )  # its own lag
            there.alter_group_offsets("billing", {TopicPartition("orders", 0): read[0] + 1})
            here.alter_group_offsets("billing", {TopicPartition("orders", 1): 4})
            copies = len(values_of(us, "orders"))
            send(eu, "orders", "more")
            copied(us, "orders", copies + 1)
        assert there.list_group_offsets("billing")[TopicPartition("orders", 0)].offset == read[0] + 1  # never back
        assert there.list_group_offsets("other") == {}


def test_a_topic_does_not_go_round(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders")
    create(us, "returns")
    send(eu, "orders", "a")
    send(us, "returns", "b")
    with mirroring(tmp_path, eu, us, [".*"], name="there"):
        copied(us, "orders", 1)
        with mirroring(tmp_path, us, eu, [".*"], name="back"):
            copied(eu, "returns", 1)
            told = until(
                lambda: (found := status_of(eu, "back")) and found.doing and "left out" in found.doing and found
            )
            assert "1 left out, for they are copies of topics of the target" in told.doing
            send(eu, "orders", "c")
            copied(us, "orders", 2)
    assert values_of(eu, "orders") == [b"a", b"c"]
    assert values_of(us, "returns") == [b"b"]


def test_what_is_on_the_target_already_is_not_mixed_up(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders")
    create(us, "orders")
    send(us, "orders", "of somebody else")
    send(eu, "orders", "a")
    with mirroring(tmp_path, eu, us, ["orders"]):
        assert "orders has records on the target that this mirror did not bring" in failed_with(us)
    with mirroring(tmp_path, eu, us, ["orders"], existing="append"):
        assert copied(us, "orders", 2) == [b"of somebody else", b"a"]


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_that_was_created_again_is_told(eu: str, us: str, tmp_path: Path, side: str) -> None:
    from ottla.cli.main import main
    from tests.connect.mirror.mirroring import write_mirror

    create(eu, "orders")
    send(eu, "orders", "a")
    with mirroring(tmp_path, eu, us, ["orders"]):
        copied(us, "orders", 1)
    bootstrap = eu if side == "source" else us
    with Admin(bootstrap) as admin:
        admin.delete_topics(["orders"])
    create(bootstrap, "orders")
    send(eu, "orders", "b")
    with mirroring(tmp_path, eu, us, ["orders"]):
        assert f"topic orders was deleted and created again on the {side}" in failed_with(us)
    file = write_mirror(tmp_path / "mirror.toml", eu, us, ["orders"])
    assert main(["mirror", "forget", str(file), "--topic", "orders"]) == 0
    with Admin(us) as admin:
        admin.delete_topics(["orders"])
    with mirroring(tmp_path, eu, us, ["orders"]):
        assert copied(us, "orders", 1)[-1] == b"b"
    assert values_of(us, "orders") == values_of(eu, "orders")


def test_a_topic_that_is_deleted_on_the_source_keeps_its_copy_and_the_others_go_on(
    eu: str, us: str, tmp_path: Path
) -> None:
    for topic in ("orders", "users"):
        create(eu, topic)
        send(eu, topic, "a")
    with Admin(eu) as source, Admin(us) as target:
        source.alter_group_offsets("g", {TopicPartition("orders", 0): 1, TopicPartition("users", 0): 1})
        with mirroring(tmp_path, eu, us, ["orders", "users"], groups=["g"]):
            copied(us, "orders", 1)
            copied(us, "users", 1)
            source.delete_topics(["orders"])
            until(lambda: "not on the source any more: orders" in (getattr(status_of(us), "doing", None) or ""))
            send(eu, "users", "b")
            copied(us, "users", 2)
            assert values_of(us, "orders") == [b"a"]
            target.delete_topics(["orders"])
            source.alter_group_offsets("g", {TopicPartition("users", 0): 2})
            until(lambda: target.list_group_offsets("g").get(TopicPartition("users", 0), Offset(0)).offset >= 2)
            send(eu, "users", "c")
            copied(us, "users", 3)


def test_a_copy_that_was_deleted_is_told(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders")
    send(eu, "orders", "a")
    with mirroring(tmp_path, eu, us, ["orders"]):
        copied(us, "orders", 1)
        with Admin(us) as admin:
            admin.delete_topics(["orders"])
        assert "topic orders was deleted on the target" in failed_with(us)


def test_records_that_were_lost_before_they_were_copied(eu: str, us: str, tmp_path: Path) -> None:
    create(eu, "orders")
    send(eu, "orders", "a")
    with mirroring(tmp_path, eu, us, ["orders"]):
        copied(us, "orders", 1)
    send(eu, "orders", "b", "c")
    with Admin(eu) as admin:
        admin.delete_records({TopicPartition("orders", 0): 2})
    with mirroring(tmp_path, eu, us, ["orders"]):
        assert "offset 1 is not on the source any more, which begins at 2" in failed_with(us)
    with mirroring(tmp_path, eu, us, ["orders"], lost="skip"):
        assert copied(us, "orders", 2) == [b"a", b"c"]


@pytest.mark.parametrize(
    ("tells_epochs", "told"),
    [
        (True, "the source has lost records that the target has, from offset 1 on"),
        (False, "the source ends before offset 7, up to which it was copied"),
    ],
)
def test_a_source_that_has_lost_what_was_copied(
    eu: str, us: str, tmp_path: Path, tells_epochs: bool, told: str
) -> None:
    """As behind an unclean election: to go on at its beginning would copy all of it twice."""
    create(eu, "orders")
    send(eu, "orders", "a")
    with mirroring(tmp_path, eu, us, ["orders"]):
        copied(us, "orders", 1)
    positions = Positions(us, ClientOptions(), "mirror", 1)
    document = positions.read_own(0)
    document["topics"]["orders"]["partitions"]["0"][0] = 7
    if not tells_epochs:  # written by an older mirror
        del document["topics"]["orders"]["leader_epochs"]
    positions.reset(document, only_task=0)
    with mirroring(tmp_path, eu, us, ["orders"], lost="skip"):
        assert told in failed_with(us)
    assert values_of(us, "orders") == [b"a"]


def test_a_source_that_has_others_in_the_place_of_what_was_copied(tmp_path: Path, us: str) -> None:
    """It is not seen by the offsets: the source has as many as before. What was copied has told its leader epoch."""
    with testing.broker() as eu:
        create(eu.bootstrap, "orders")
        send(eu.bootstrap, "orders", "a", "b")
        with mirroring(tmp_path, eu.bootstrap, us, ["orders"]):
            copied(us, "orders", 2)
        eu.restart()  # its next leader epoch
        send(eu.bootstrap, "orders", "others", "others", "others")
        positions = Positions(us, ClientOptions(), "mirror", 1)
        document = positions.read_own(0)
        document["topics"]["orders"]["partitions"]["0"][0] = 4  # two more were copied from the leader before
        positions.reset(document, only_task=0)
        with mirroring(tmp_path, eu.bootstrap, us, ["orders"], lost="skip"):
            assert "the source has lost records that the target has, from offset 2 on" in failed_with(us)
    assert values_of(us, "orders") == [b"a", b"b"]


def test_where_a_topic_begins_is_kept_before_a_record_is_copied(eu: str, us: str, tmp_path: Path) -> None:
    """Killed before, another runner would begin at the end that the topic has then."""
    create(eu, "orders")
    send(eu, "orders", "a")
    with mirroring(tmp_path, eu, us, ["orders"], start="latest"):
        positions = Positions(us, ClientOptions(), "mirror", 1)
        until(lambda: topic_exists(us, ClientOptions(), positions.topic) and positions.read_own(0))
        assert positions.read_own(0)["topics"]["orders"]["partitions"] == {"0": [1]}


def test_a_task_without_partitions_knows_the_topic_before_they_come(eu: str, us: str, tmp_path: Path) -> None:
    """The partition comes while nobody copies: it would begin at its end, as one of a topic that is new."""
    create(eu, "orders")
    [index] = [1 - zlib.crc32(b"orders-0") % 2]  # the task that has nothing yet
    settings = {"tasks": 2, "start": "latest"}
    with mirroring(tmp_path, eu, us, ["orders"], **settings):
        positions = Positions(us, ClientOptions(), "mirror", 2)
        until(lambda: topic_exists(us, ClientOptions(), positions.topic))
        for task in range(2):
            until(lambda: positions.read_own(task))  # noqa: B023
    assert positions.read_own(index)["topics"]["orders"]["partitions"] == {}
    count = next(each for each in range(1, 20) if zlib.crc32(b"orders-%d" % each) % 2 == index) + 1
    with Admin(eu) as admin, Producer(eu) as producer:
        admin.expand_topics({"orders": count})
        producer.send_many("orders", [NewRecord(b"first", partition=count - 1)])
    with mirroring(tmp_path, eu, us, ["orders"], **settings):
        until(lambda: b"first" in values_of(us, "orders"))


def test_one_cluster_is_no_mirror(eu: str, tmp_path: Path) -> None:
    with mirroring(tmp_path, eu, eu, ["orders"]):
        assert "source and target are one cluster" in failed_with(eu)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf"])
def test_how_often_it_looks_around_is_a_number(tmp_path: Path, seconds: str) -> None:
    """With nan it never would, and with inf once: new topics would not be seen, without a word."""
    file = tmp_path / "mirror.toml"
    file.write_text(f'source = "a:1"\ntarget = "b:1"\ntopics = ["t"]\nrefresh_seconds = {seconds}\n')
    with pytest.raises(ConfigurationRefused, match="refresh_seconds is above 0 and at most 86,400, not"):
        load_mirror(file).connectors["mirror"].make()


def test_a_setting_that_is_not_there_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text('source = "a:1"\ntarget = "b:1"\ntopcs = ["t"]\n')
    with pytest.raises(ConfigurationRefused, match="connector mirror: MirrorSource has no setting 'topcs'; there are"):
        load_mirror(file)
