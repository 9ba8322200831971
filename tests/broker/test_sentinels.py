"""Numbers that stand for "no limit" or "never", at a broker and with a client."""

from __future__ import annotations

import contextlib
import socket
import time
from pathlib import Path

import pytest

import ottla.testing
from ottla.log.housekeeping import Housekeeping
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.testing.slices import run_here
from tests.broker.opened_broker import OpenBroker, topic


def test_connections_stay_where_idleness_has_no_limit() -> None:
    with (
        ottla.testing.broker(settings={"connections.max.idle.ms": "-1"}) as broker,
        contextlib.closing(socket.create_connection((broker.host, broker.port))) as client,
    ):
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)


@pytest.mark.parametrize(
    "settings",
    [
        {"log.retention.bytes": "-2", "log.retention.ms": "-1"},
        {"log.retention.hours": "-1"},
        {"log.retention.minutes": "-3"},
        {"log.retention.ms": "-7"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_has_no_limit_is_kept(tmp_path: Path, settings: dict[str, str]) -> None:
    broker = OpenBroker(tmp_path, **{name.replace(".", "_"): value for name, value in settings.items()})
    broker.create(topic("kept"))
    partition = broker.broker.topics.partition("kept", 0)
    assert partition is not None
    log = partition.log
    for _ in range(3):
        batch = build_batch([b"v" * 100], timestamp=1)
        log.append(batch, read_header(batch), 0, 1)
        log.roll(1)
    log.advance_high_watermark(log.end_offset)
    run_here(Housekeeping(broker.broker.logs.managers[0], lambda: time.time_ns() // 1_000_000).retain())
    assert (log.log_start_offset, log.end_offset) == (0, 3)
    broker.stop()
