"""What the verbs of `ottla transactions` do."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from ottla.cli.broker_options import bootstrap_of, client_options, errors_as_sentences
from ottla.cli.errors import FAILED
from ottla.cli.record_text import iso_time
from ottla.cli.table import table
from ottla.client import Admin, ServerError
from ottla.client.admin.transactions import NO_OFFSET, PartitionProducer, TransactionDescription
from ottla.wire.errors import ErrorCode

UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")


def list_transactions(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        listed = admin.list_transactions(
            states=options.state,
            producer_ids=options.producer_id,
            least_duration_ms=-1 if options.longer_than is None else round(options.longer_than * 1000),
            id_pattern=options.pattern,
        )
    _print_rows(options, [listing._asdict() for listing in listed])
    return 0


def describe(options: argparse.Namespace) -> int:
    code = 0
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        for transactional_id in options.ids:
            try:
                row = _described(admin.describe_transaction(transactional_id))
            except ServerError as error:
                print(f"ottla: {error}", file=sys.stderr)
                code = FAILED
                continue
            if options.json:
                print(json.dumps(row))
            else:
                _print_described(row)
    return code


def find_hanging(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        topics = options.topics or [topic.name for topic in admin.list_topics()]
        before_ms = time.time_ns() // 1_000_000 - round(options.longer_than * 1000)
        rows = list(_hanging(admin, topics, before_ms))
    _print_rows(options, rows)
    return 0


def _hanging(admin: Admin, topics: list[str], before_ms: int) -> Iterator[dict[str, Any]]:
    """Open in a partition and long without a write, while no coordinator has it open there."""
    known: dict[int, TransactionDescription | None] = {}
    for topic in topics:
        for partition, producers in admin.describe_producers(topic).items():
            for producer in producers:
                if producer.transaction_start_offset == NO_OFFSET or producer.last_timestamp_ms > before_ms:
                    continue
                if producer.producer_id not in known:
                    known[producer.producer_id] = _transaction_of(admin, producer.producer_id)
                transaction = known[producer.producer_id]
                if not _is_open(transaction, topic, partition):
                    yield _hanging_row(topic, partition, producer, transaction)


def _transaction_of(admin: Admin, producer_id: int) -> TransactionDescription | None:
    for listing in admin.list_transactions(producer_ids=[producer_id]):
        try:
            return admin.describe_transaction(listing.transactional_id)
        except ServerError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return None


def _is_open(transaction: TransactionDescription | None, topic: str, partition: int) -> bool:
    return transaction is not None and transaction.state in UNDER_WAY and (topic, partition) in transaction.partitions


def _hanging_row(
    topic: str, partition: int, producer: PartitionProducer, transaction: TransactionDescription | None
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "start_offset": producer.transaction_start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "last_write": iso_time(producer.last_timestamp_ms),
        "transactional_id": None if transaction is None else transaction.transactional_id,
    }


def abort(options: argparse.Namespace) -> int:
    with errors_as_sentences(), Admin(bootstrap_of(options), client_options(options)) as admin:
        if options.transactional_id is not None:
            admin.abort_transaction(options.transactional_id)
            row: dict[str, Any] = {"transactional_id": options.transactional_id}
            line = f"{options.transactional_id}: aborted, its producer is fenced"
        else:
            place = options.topic, options.partition
            producer = admin.abort_in_partition(*place, options.start_offset)
            row = {"topic": options.topic, "partition": options.partition, "producer_id": producer.producer_id}
            line = f"{options.topic}-{options.partition}: the transaction of producer {producer.producer_id} is aborted"
    print(json.dumps(row) if options.json else line)
    return 0


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": list_transactions,
    "describe": describe,
    "find-hanging": find_hanging,
    "abort": abort,
}


def _described(transaction: TransactionDescription) -> dict[str, Any]:
    row = transaction._asdict()
    row["started"] = iso_time(row.pop("started_ms"))
    row["partitions"] = [f"{topic}-{index}" for topic, index in sorted(transaction.partitions)]
    return row


def _print_described(row: dict[str, Any]) -> None:
    print(f"{row['transactional_id']}  {row['state']}")
    print(f"  producer    id {row['producer_id']}, epoch {row['producer_epoch']}")
    print(f"  timeout     {row['timeout_ms'] / 1000:g} s")
    print(f"  started     {row['started'] or '-'}")
    print(f"  partitions  {', '.join(row['partitions']) or '-'}")


def _print_rows(options: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if options.json:
        for row in rows:
            print(json.dumps(row))
    elif rows:
        heading = [name.replace("_", " ") for name in rows[0]]
        for line in table(heading, [["-" if cell is None else cell for cell in row.values()] for row in rows]):
            print(line)
