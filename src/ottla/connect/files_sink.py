"""`files-sink`: the records of each partition in files, JSON lines or Parquet, exactly once.

A batch becomes a file whose name holds its topic, partition and first offset. Before the file gets its name, a claim
is made: a small file, named by the offset that was stored before, which only one writer can create and which says what
comes next. The claims are the stored offsets; a runner that finds its claim taken is fenced. A crash between claim and
name is mended by whoever reads the claims next.
"""

from __future__ import annotations

import base64
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from ottla.client import Message, TopicPartition
from ottla.connect.interface import BadRecord, ConnectorRefused, Fenced, Finding, Sink, SinkBatch, Task

KEPT_CLAIMS = 2
CLAIMS = "_claims"
Claim = Mapping[str, Any]
"""What comes next, under which name the file was written, and which it gets."""


class FilesSink(Sink):
    """`content` is "value", the values as they are (JSON, for both formats), or "record": with key and offset."""

    stores_offsets = True

    def __init__(
        self, *, path: str, format: Literal["jsonl", "parquet"] = "jsonl", content: Literal["value", "record"] = "value"
    ) -> None:  # fmt: skip
        """ValueError for settings that cannot be."""
        if not path:
            raise ValueError("path is empty: it names the folder that files are written to")
        self._folder = Path(path)
        self._format = format
        self._content = content

    def check(self) -> Iterable[Finding]:
        parent = self._folder if self._folder.exists() else self._folder.parent
        if not os.access(parent, os.W_OK):
            yield Finding(f"{parent}: may not be written to", is_problem=True)
        else:
            yield Finding(f"{self._folder}: files will be written there")

    def open(self, task: Task) -> None:
        (self._folder / CLAIMS).mkdir(parents=True, exist_ok=True)

    def stored_offsets(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        stored = {}
        for place in places:
            claims = self._claims(place)
            if claims:
                claim = json.loads((self._claim_folder(place) / claims[-1]).read_text())
                self._finish(claim)
                self._clean(place, int(claims[-1]))
                stored[place] = claim["next_offset"]
        return stored

    def stored_topic_ids(self, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, str]:
        found = {}
        for place in places:
            if claims := self._claims(place):
                claim = json.loads((self._claim_folder(place) / claims[-1]).read_text())
                found[place] = claim.get("topic_id", "")
        return found

    def forget_offsets(self) -> None:
        """The files stay: with what is written then, records are there twice unless they are removed first."""
        for folder in (self._folder / CLAIMS).glob("*"):
            for claim in folder.glob("*"):
                claim.unlink()

    def write(self, batch: SinkBatch) -> None:
        if not batch.records:
            self._finish_claim(batch, self._claim(batch, None, ""))
            return
        name = f"{batch.topic}+{batch.partition}+{batch.records[0].offset:020}.{self._format}"
        self._refuse_another(batch, name)
        temporary = self._folder / f".{name}.{uuid.uuid4().hex}"
        try:
            self._fill(temporary, batch.records)
            _sync(temporary)
            claim = self._claim(batch, temporary.name, name)
        except BaseException:
            # Nobody has claimed it: on a full disk it would be in the way of the next attempt.
            temporary.unlink(missing_ok=True)
            raise
        self._finish_claim(batch, claim)

    def _refuse_another(self, batch: SinkBatch, name: str) -> None:
        """A file that is there before its batch is claimed is of what was read before a reset: it is not replaced."""
        claims = self._claims(batch.place)
        is_claimed = bool(claims) and int(claims[-1]) >= max(batch.start_offset, 0)  # then another runner was faster
        if not is_claimed and (self._folder / name).exists():
            raise ConnectorRefused(
                f"{self._folder / name} is there already, of what was read before: move the files of this topic away, "
                "or choose another path"
            )

    # Claims.

    def _claim_folder(self, place: TopicPartition) -> Path:
        return self._folder / CLAIMS / str(place)

    def _claims(self, place: TopicPartition) -> list[str]:
        folder = self._claim_folder(place)
        return sorted(name.name for name in folder.glob("[0-9]*")) if folder.exists() else []

    def _claim(self, batch: SinkBatch, temporary: str | None, name: str) -> Claim:
        """When this returns the batch is done, whatever happens; if it raises, nothing is."""
        folder = self._claim_folder(batch.place)
        if not folder.exists():
            folder.mkdir(exist_ok=True)
            _sync(folder.parent)
        claim = {
            "next_offset": batch.next_offset, "temporary": temporary, "name": name, "topic_id": batch.topic_id,
        }  # fmt: skip
        own = folder / f".{uuid.uuid4().hex}"
        number = max(batch.start_offset, 0)
        claimed = folder / f"{number:020}"
        try:
            own.write_text(json.dumps(claim))
            _sync(own)
            os.link(own, claimed)
        except FileExistsError:
            raise Fenced(f"{batch.place}: another runner has written the batch from offset {number} on") from None
        finally:
            own.unlink(missing_ok=True)
        return claim

    def _finish_claim(self, batch: SinkBatch, claim: Claim) -> None:
        folder, number = self._claim_folder(batch.place), max(batch.start_offset, 0)
        if self._claims(batch.place)[-1] != f"{number:020}":  # so late that the claim was forgotten already
            (folder / f"{number:020}").unlink()
            if claim["temporary"] is not None:
                (self._folder / claim["temporary"]).unlink(missing_ok=True)
            raise Fenced(f"{batch.place}: another runner has written what comes behind offset {number}")
        _sync(folder)
        self._finish(claim)
        for old in self._claims(batch.place)[:-KEPT_CLAIMS]:
            (folder / old).unlink(missing_ok=True)

    def _clean(self, place: TopicPartition, last_claim: int) -> None:
        """Removes what dead runners have left. What begins at the last claim or behind it may still be claimed."""
        for left in self._folder.glob(f".{place.topic}+{place.partition}+*"):
            if int(left.name.split("+")[2].split(".")[0]) < last_claim:
                left.unlink(missing_ok=True)

    def _finish(self, claim: Claim) -> None:
        if claim["temporary"] is None:
            return
        try:
            (self._folder / claim["temporary"]).rename(self._folder / claim["name"])
        except FileNotFoundError:
            return  # it has its name already
        _sync(self._folder)

    # Contents.

    def _fill(self, path: Path, records: Sequence[Message]) -> None:
        if self._format == "jsonl":
            lines = [self._line(record) for record in records]
            path.write_bytes(b"".join(lines))
            return
        rows = [self._row(record) for record in records]
        if not any(rows):
            raise BadRecord(records[0].offset, "the value has no fields, of which a Parquet file has at least one")
        try:
            _write_parquet(rows, path)
        except OSError:
            raise
        except _unfit() as error:
            raise BadRecord(_misfit(rows, records), f"does not fit the rows before it: {error}") from None

    def _line(self, record: Message) -> bytes:
        if self._content == "record":
            return json.dumps(self._row(record), ensure_ascii=False).encode() + b"\n"
        value = record.value if record.value is not None else b"null"
        if b"\n" in value:
            value = json.dumps(_parsed(record)).encode()  # in ASCII: halves of characters may stand in it
        return bytes(value) + b"\n"

    def _row(self, record: Message) -> dict[str, Any]:
        if self._content == "value":
            document = _parsed(record)
            if not isinstance(document, dict):
                raise BadRecord(record.offset, "the value is no JSON object, which a row of a Parquet file must be")
            return document
        return {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key": _text(record.key),
            "value": _text(record.value),
        }


def _parsed(record: Message) -> Any:
    try:
        return json.loads(record.value)
    except (ValueError, TypeError, RecursionError) as error:
        raise BadRecord(record.offset, f"the value is no JSON: {error}") from None


def _text(data: bytes | None) -> str | None:
    """Text as it is; bytes that are none in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return base64.b64encode(data).decode()


def _unfit() -> tuple[type[Exception], ...]:
    """What rows raise that are none for Arrow and Parquet."""
    import pyarrow as pa

    return pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError


def _write_parquet(rows: Sequence[Mapping[str, Any]], target: Any) -> None:
    """With the columns of all rows, not only of the first."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = dict.fromkeys(name for row in rows for name in row)
    pq.write_table(pa.table({name: [row.get(name) for row in rows] for name in names}), target)


def _misfit(rows: list[dict[str, Any]], records: Sequence[Message]) -> int:
    """A record with which the rows before it do not fit together, though without it they do. Found by halves."""
    import pyarrow as pa

    fitting, count = 0, len(rows)
    while count - fitting > 1:
        middle = (fitting + count) // 2
        try:
            _write_parquet(rows[:middle], pa.BufferOutputStream())
            fitting = middle
        except _unfit():
            count = middle
    return records[count - 1].offset


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
