"""Changes through Spark into tables: from topics and from DataFrames, in batches and in streams."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark.sql.functions as fn
import pytest
from pyspark.errors import StreamingQueryException

from ottla.client import EARLIEST, LATEST, Admin, NewRecord, Producer, Reader
from ottla.pipelines import ChangeEvent, DeadLetters, apply_changes, encode_event, encode_key, read_arrow, read_table
from ottla.pipelines.tables.applier import Applier, BadEvent, Outcome
from ottla.pipelines.tables.rules import Rules, RulesRefused
from ottla.pipelines.tables.verify import verify_tables
from ottla.testing import LocalBroker
from tests.pipelines.tables.model import Change, current, disturbed, random_changes, versions
from tests.pipelines.tables.test_table import rows_in, versions_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def event_of(change: Change) -> bytes:
    if change.key is None:
        return encode_event(ChangeEvent("t", None, None, None, change.position, change.position))
    key = {"id": change.key}
    after = None if change.is_deleted else {"id": change.key, "value": change.value, "note": change.note}
    columns = {"id": "bigint", "value": "string", "note": "string"}
    operation = "d" if change.is_deleted else "u"
    return encode_event(ChangeEvent(operation, key, None, after, change.position, change.position, 1, columns))


def send(broker: LocalBroker, topic: str, changes: Iterable[Change]) -> None:
    with Producer(broker.bootstrap, create_topics=True) as producer:
        records = [
            NewRecord(event_of(change), key=None if change.key is None else encode_key({"id": change.key}))
            for change in changes
        ]
        producer.send_many(topic, records)


def messages(spark: SparkSession, broker: LocalBroker, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    return reader.options(**options).load()


def stream(spark: SparkSession, broker: LocalBroker, topic: str) -> DataFrame:
    reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", broker.bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def applied(outcome: Any) -> int:
    assert isinstance(outcome, Outcome)
    return outcome.changes


def test_a_stream_becomes_a_table_and_a_replay_changes_nothing(
    engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    ottla.topic("changes", partitions=2)
    target = str(tmp_path / "t")
    sent: list[Change] = []
    for batch in disturbed(random.Random(1), random_changes(random.Random(1), 300, truncates=0.01), 180):
        send(ottla, "changes", batch)
        sent += batch
        # Every time the whole topic: what the table has is skipped by its offsets.
        source = stream(spark, ottla, "changes")
        query = apply_changes(target, source, ["id"], trigger={"availableNow": True}, buckets=3, engine=engine)
        assert not isinstance(query, Outcome)
        query.awaitTermination()
    same_for_spark(spark, target, engine)
    assert rows_in(tmp_path / "t") == current(sent)
    again = apply_changes(target, messages(spark, ottla, "changes"), "id", buckets=3, engine=engine)
    assert applied(again) == 0
    wait_for(lambda: not checkpoints(os.getpid()))


def checkpoints(process: int) -> list[Path]:
    return list(Path(tempfile.gettempdir()).glob(f"ottla-checkpoint-{process}-*"))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_the_checkpoints_of_a_killed_process_are_removed_by_the_next() -> None:
    program = "import os; from ottla.pipelines.tables.checkpoint import new_checkpoint as new; new(); os.{}"
    killed, ended = (
        subprocess.Popen([sys.executable, "-c", program.format(how)]) for how in ("kill(os.getpid(), 9)", "getpid()")
    )
    for process in (killed, ended):
        process.wait()
    assert not checkpoints(ended.pid)
    subprocess.run([sys.executable, "-c", program.format("getpid()")], check=True)
    assert not checkpoints(killed.pid)


def same_for_spark(spark: SparkSession, target: str, engine: str) -> None:
    by_spark = read_table(spark, target, engine=engine).toArrow().to_pylist()
    in_memory = read_arrow(target, is_plain=True).to_pylist()
    assert sorted(map(str, by_spark)) == sorted(map(str, in_memory))


@pytest.mark.parametrize(
    ("engine", "tracked"), [("deltalake", None), ("deltalake", ["value"]), ("delta-spark", None)], indirect=["engine"]
)
def test_a_history_has_every_version_once(
    tracked: list[str] | None, engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    """Of some columns with the engine of a cluster: test_engines."""
    first, second = disturbed(random.Random(1), random_changes(random.Random(1), 200, truncates=0.02), 120)
    target = str(tmp_path / "t")
    columns = None if tracked is None else tuple(tracked)
    options: dict[str, Any] = {"stored_as_scd_type": 2, "track_history_column_list": columns, "buckets": 3}
    options["engine"] = engine
    for batch in (first, second):
        send(ottla, "changes", batch)
        apply_changes(target, messages(spark, ottla, "changes"), "id", **options)
        if batch is first:
            Applier(target, Rules(("id",), **options), spark).fold()
    same_for_spark(spark, target, engine)
    assert versions_in(tmp_path / "t") == versions(first + second, tracks_note=tracked is None)


def test_the_order_of_offsets_serves_sources_without_positions(
    engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    with Producer(ottla.bootstrap, create_topics=True) as producer:
        for value in ("a", "b", "c"):
            producer.send("plain", b'{"op": "u", "after": {"id": 1, "value": "%s"}}' % value.encode())
    apply_changes(str(tmp_path / "t"), messages(spark, ottla, "plain"), ["id"], sequence_by="offset", engine=engine)
    assert [row["value"] for row in read_arrow(str(tmp_path / "t")).to_pylist()] == ["c"]


def test_offsets_of_a_topic_that_is_another_or_has_grown_are_not_believed(
    spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    """They would be skipped, or lose to changes that came before them. Nobody looks at a topic but its stream here."""
    ottla.topic("other", partitions=1)
    ottla.topic("grown", partitions=1)

    def run(topic: str, sequence_by: str) -> None:
        reader = spark.readStream.format("ottla").option("kafka.bootstrap.servers", ottla.bootstrap)
        source = reader.options(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false").load()
        given: dict[str, Any] = {"sequence_by": sequence_by, "buckets": 1, "trigger": {"availableNow": True}}
        query = apply_changes(str(tmp_path / topic), source, ["id"], **given)
        assert not isinstance(query, Outcome)
        query.awaitTermination()

    for topic, order in (("other", "position"), ("grown", "offset")):
        send(ottla, topic, [Change(1, 1, "a"), Change(2, 2, "b")])
        run(topic, order)
    with Admin(ottla.bootstrap) as admin:
        admin.expand_topics({"grown": 2})
        admin.delete_topics(["other"])
    ottla.topic("other", partitions=1)
    send(ottla, "other", [Change(1, 3, "c")])
    with Producer(ottla.bootstrap) as producer:
        producer.send("grown", event_of(Change(1, 3, "c")), partition=1).result()
    with pytest.raises(StreamingQueryException, match="other was deleted and created again"):
        run("other", "position")
    with pytest.raises(StreamingQueryException, match="grown has 2 partitions now, and had 1 when the table began"):
        run("grown", "offset")
    assert rows_in(tmp_path / "other") == rows_in(tmp_path / "grown") == current([Change(1, 1, "a"), Change(2, 2, "b")])


def test_rules_that_a_source_cannot_follow_are_refused(spark: SparkSession, ottla: LocalBroker, tmp_path: Path) -> None:
    ottla.topic("rules", partitions=1)
    events, rows = messages(spark, ottla, "rules"), spark.createDataFrame([(1, 1)], "id long, seq long")
    cases: list[tuple[DataFrame, dict[str, Any], str]] = [
        (events, {"keys": "id", "sequence_by": "seq"}, 'sequence_by is "position" or "offset" where the source'),
        (events, {"keys": "id", "apply_as_deletes": "value is null"}, "apply_as_deletes is for rows of one's own"),
        (rows, {"keys": "key", "sequence_by": "seq"}, "keys: the source has no column 'key'; there are id, seq"),
        (rows, {"keys": "id"}, "sequence_by: 'position' is neither a column nor an expression; there are"),
    ]
    for frame, given, sentence in cases:
        with pytest.raises(RulesRefused) as refused:
            apply_changes(str(tmp_path / "t"), frame, **given)
        assert sentence in str(refused.value)


def test_bad_events_go_to_the_dead_letters_or_stop(
    engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    send(ottla, "mixed", [Change(1, 1, "a")])
    with Producer(ottla.bootstrap, create_topics=True) as producer:
        producer.send("mixed", b"rubbish", key=b"k").result()
    send(ottla, "mixed", [Change(2, 2, "b")])
    with pytest.raises(BadEvent, match=r"mixed, partition 0, offset 1: the message is no JSON"):
        apply_changes(str(tmp_path / "stops"), messages(spark, ottla, "mixed"), ["id"], engine=engine)
    letters = DeadLetters(ottla.bootstrap, "mixed.dead-letters")
    for expected in (2, 0):
        frame = messages(spark, ottla, "mixed")
        outcome = apply_changes(str(tmp_path / "t"), frame, ["id"], dead_letters=letters, engine=engine)
        assert applied(outcome) == expected
    assert sorted(rows_in(tmp_path / "t")) == [1, 2]
    with Reader(ottla.bootstrap, letters.topic, start=EARLIEST, end=LATEST) as reader:
        (letter,) = [record for fetched in reader for record in fetched.records]
    assert (letter.key, letter.value) == (b"k", b"rubbish")
    headers = dict(letter.headers)
    assert (headers["ottla.error"] or b"").startswith(b"the message is no JSON")
    assert headers["ottla.offset"] == b"1"


def test_crooked_events_never_stop_a_table(
    engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    """Of messages that contradict each other the first is believed; a letter that would be too large goes without."""
    good = [{"op": "c", "after": {"id": 1, "size": 7}, "position": 1}, {"op": "c", "after": {"id": 2}, "position": 2}]
    bad = [
        {"op": "c", "after": {"id": 3, "size": "large"}, "position": 3},
        {"op": "c", "after": {"id": "four"}, "position": 4},
        {"op": "c", "after": {"id": 5, "Size": 5}, "position": 5},
        {"op": ["c"], "after": {"id": 6}, "position": 6},
        {"op": "c", "after": {"id": 7, "size": "x" * 1_048_400}, "position": 7},
    ]
    with Producer(ottla.bootstrap, create_topics=True) as producer:
        for event in (good[0], *bad, good[1]):
            producer.send("crooked", json.dumps(event, separators=(",", ":")).encode(), key=b"k").result()
    letters = DeadLetters(ottla.bootstrap, "crooked.dead-letters")
    target = str(tmp_path / "t")
    outcome = apply_changes(target, messages(spark, ottla, "crooked"), "id", dead_letters=letters, engine=engine)
    assert applied(outcome) == 2
    rows = read_arrow(target, is_plain=True).to_pylist()
    assert sorted((row["id"], row["size"]) for row in rows) == [(1, 7), (2, None)]
    with Reader(ottla.bootstrap, letters.topic, start=EARLIEST, end=LATEST) as reader:
        found = [record for fetched in reader for record in fetched.records]
    sent = {dict(letter.headers)["ottla.offset"]: letter for letter in found}
    assert sorted(sent) == [b"1", b"2", b"3", b"4", b"5"]
    assert sent[b"5"].value is None
    assert sent[b"5"].key == b"k"
    assert b"too large" in (dict(sent[b"5"].headers)["ottla.left-out"] or b"")


def test_columns_grow_with_the_events(engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path) -> None:
    def send_row(row: dict[str, Any], columns: dict[str, str], position: int) -> None:
        event = ChangeEvent("c", {"id": row["id"]}, None, row, position, None, position, columns)
        with Producer(ottla.bootstrap, create_topics=True) as producer:
            producer.send("growing", encode_event(event)).result()

    target = str(tmp_path / "t")
    send_row({"id": 1, "size": 7}, {"id": "int", "size": "int"}, 1)
    apply_changes(target, messages(spark, ottla, "growing"), ["id"], engine=engine)
    send_row({"id": 2**40, "size": 2**40, "colour": "red"}, {"id": "bigint", "size": "bigint", "colour": "string"}, 2)
    apply_changes(target, messages(spark, ottla, "growing"), ["id"], engine=engine)
    rows = {
        row["id"]: (row["size"], row["colour"])
        for row in read_table(spark, target, engine=engine).toArrow().to_pylist()
    }
    assert rows == {1: (7, None), 2**40: (2**40, "red")}


@pytest.mark.parametrize("sequence", ["number", "text", "time", "struct"])
def test_rows_of_ones_own_follow_the_rules_of_autocdc(sequence: str, spark: SparkSession, tmp_path: Path) -> None:
    numbers = [3, -1, 12, 12, 7, 100]
    expressions = {
        "number": "number",
        "text": "format_string('%05d', number + 5)",
        "time": "timestamp_micros(number)",
        "struct": "named_struct('a', 1, 'b', number)",
    }
    rows = [(1, n, f"v{n}", "s", "D" if n == 100 else "U") for n in numbers]
    rows += [(2, n, f"v{n}", "s", "U") for n in numbers]
    random.Random(2).shuffle(rows)
    frame = spark.createDataFrame(rows, "id long, number long, value string, secret string, op string")
    frame = frame.selectExpr("*", f"{expressions[sequence]} AS seq")
    options: dict[str, Any] = {"apply_as_deletes": "op = 'D'", "except_column_list": ["op", "seq", "number", "secret"]}
    target = str(tmp_path / "t")
    parts = (frame.where("number < 10"), frame.where("number >= 10"), frame.where("number = 7"))
    # As AutoCDC takes them: columns by name or as such, an order also as an expression.
    forms: list[dict[str, Any]] = [
        {"keys": ["id"], "sequence_by": "seq"},
        {"keys": [fn.col("id")], "sequence_by": fn.col("seq"), "stored_as_scd_type": "1"},
        {"keys": "id", "sequence_by": expressions[sequence], "stored_as_scd_type": None},
    ]
    for part, form in zip(parts, forms, strict=True):
        apply_changes(target, part, **form, **options)
    assert read_arrow(target, is_plain=True).to_pylist() == [{"id": 2, "value": "v100"}]


def test_a_row_without_key_or_sequence_stops_a_batch_whole(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(1, 1, "a"), (None, 2, "b")], "id long, seq long, value string")
    with pytest.raises(BadEvent, match="no key: id"):
        apply_changes(str(tmp_path / "t"), frame, keys=["id"], sequence_by="seq", engine=engine)
    for frame in (
        spark.createDataFrame([(1, None, "a")], "id long, seq long, value string"),
        spark.createDataFrame([(1, "1\n", "a")], "id long, seq string, value string"),
    ):
        path = str(tmp_path / frame.schema["seq"].dataType.simpleString())
        with pytest.raises(BadEvent, match="no position"):
            apply_changes(path, frame, keys=["id"], sequence_by="seq", engine=engine)
    assert read_arrow(str(tmp_path / "t")).num_rows == 0


def test_zero_is_one_key_and_what_is_not_a_number_is_none(engine: str, spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "a ü#{1}")  # no path is too odd to be read
    rows = [(0.0, 1, "a"), (-0.0, 2, "b")]
    options: dict[str, Any] = {"keys": ["id"], "sequence_by": "seq", "engine": engine, "stored_as_scd_type": 2}
    for row in rows:
        apply_changes(target, spark.createDataFrame([row], "id double, seq long, value string"), **options)
    found = read_table(spark, target, engine=engine).toArrow().sort_by("seq").to_pylist()
    assert [(str(row["id"]), row["value"], row["__END_AT"] is None) for row in found] == [
        ("0.0", "a", False),
        ("0.0", "b", True),
    ]
    nothing = spark.createDataFrame([(float("nan"), 3, "c")], "id double, seq long, value string")
    with pytest.raises(BadEvent, match="no key: id"):
        apply_changes(target, nothing, **options)


def test_a_table_without_a_single_change_is_read(
    engine: str, spark: SparkSession, ottla: LocalBroker, tmp_path: Path
) -> None:
    """Of its keys not even the type is known."""
    with Producer(ottla.bootstrap, create_topics=True) as producer:
        producer.send("rubbish", b"rubbish").result()
    letters = DeadLetters(ottla.bootstrap, "rubbish.dead-letters")
    target = str(tmp_path / "t")
    apply_changes(target, messages(spark, ottla, "rubbish"), "id", dead_letters=letters, engine=engine)
    assert read_arrow(target, is_plain=True).num_rows == read_table(spark, target, engine=engine).count() == 0
    assert verify_tables(target, target).is_equal
