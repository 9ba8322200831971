"""The page on Spark: its programs run, and its tables have every option."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client import NewRecord, Producer
from ottla.pipelines import source_options, streams
from ottla.pipelines.sink import options as sink_options
from ottla.testing import LocalBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def options_of(section: str) -> set[str]:
    """Those that the table of a section names in its first column."""
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    table = text.split("| option |")[1].split("\n\n")[0]
    return {
        name
        for row in table.splitlines()
        for name in re.findall(r"`([\w.]+)`", row.split("|")[1] if "|" in row else "")
    }


def test_the_tables_have_every_option() -> None:
    plumbing = {"kafka.security.protocol", "checkpointLocation", "queryName"}
    of_client = {
        "kafka.client.id",
        "kafka.request.timeout.ms",
        "kafka.socket.connection.setup.timeout.ms",
        "kafka.retry.backoff.ms",
    }
    assert options_of("Reading") == {*source_options.BATCH_NAMES, *source_options.STREAM_NAMES} - plumbing
    assert options_of("Writing") == {*sink_options.BATCH_NAMES, *sink_options.STREAM_NAMES} - plumbing - of_client


@pytest.mark.ottla(topics={"orders": 2, "large-orders": 2})
def test_the_programs_run(
    spark: "SparkSession",
    ottla: LocalBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Producer(ottla.bootstrap) as producer:
        producer.send_many("orders", [NewRecord(b'{"order_id": 1, "customer": "ann", "amount": 120.5}', b"ann")])
    programs = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(programs) == 2
    exec(programs[0], {"bootstrap": ottla.bootstrap})
    assert "ann" in capsys.readouterr().out
    # The page's query goes on for ever; here it ends with what is there.
    begin = streams.Streams.__init__

    def begin_and_end(self: streams.Streams, *arguments: str) -> None:
        begin(self, *arguments, available_now=True)

    monkeypatch.setattr(streams.Streams, "__init__", begin_and_end)
    exec(programs[1], {"bootstrap": ottla.bootstrap, "checkpoints": str(tmp_path)})
    assert [b"120.5" in (value or b"") for value in ottla.values("large-orders")] == [True]
