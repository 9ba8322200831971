"""Rounds of syncs, also where one ends in a way that nobody thought of."""

import contextlib

from ottla.log.errors import StorageFailed
from ottla.log.log import Log
from ottla.log.recovery import open_log
from ottla.log.sync import SyncRound
from ottla.log.topic_config import TopicConfig
from ottla.testing.files import Crashed, Effect, SimulatedFiles
from tests.log.writing import append


def written(files: SimulatedFiles, folder: str = "/data/t-0") -> Log:
    log = open_log(files, folder, TopicConfig(), now_ms=0)
    append(log)
    return log


def test_a_round_brings_all_logs_to_the_disk() -> None:
    files = SimulatedFiles()
    logs = [written(files, f"/data/t-{number}") for number in range(3)]
    under_way = SyncRound(logs)
    assert not under_way.is_over
    append(logs[0])  # while the sync is under way
    under_way.run()
    under_way.end(0)
    assert under_way.results == dict.fromkeys(logs)
    assert [log.recovery_point for log in logs] == [1, 1, 1]


def test_what_a_broken_round_was_to_sync_does_not_count_as_synced() -> None:
    files = SimulatedFiles()
    log = written(files)
    under_way = SyncRound([log])
    files.arm(files.operation_count + 1, Effect.CRASH)  # no error that an operating system gives
    with contextlib.suppress(Crashed):
        under_way.run()
    files.kill()  # so that the end finds a machine that is up
    under_way.end(0)
    assert isinstance(under_way.results[log], StorageFailed)
    assert log.recovery_point == 0


def test_a_sync_that_fails_stops_the_log() -> None:
    files = SimulatedFiles()
    log = written(files)
    under_way = SyncRound([log])
    files.arm(files.operation_count + 1, Effect.FAIL)
    under_way.run()
    under_way.end(0)
    assert isinstance(under_way.results[log], StorageFailed)
    again = SyncRound([log])  # the pages may be gone: it is never tried again
    assert again.is_over
    assert isinstance(again.results[log], StorageFailed)


def test_what_somebody_else_has_flushed_is_done() -> None:
    log = written(SimulatedFiles())
    log.flush(0)
    under_way = SyncRound([log])
    assert under_way.is_over
    assert under_way.results == {log: None}


def test_a_log_whose_files_are_gone_does_not_hold_up_the_others() -> None:
    files = SimulatedFiles()
    gone, there = (written(files, f"/data/{name}") for name in ("gone-0", "there-0"))
    gone.segments.close()
    files.rename("/data/gone-0", "/data/gone-0.deleted")
    under_way = SyncRound([gone, there])
    under_way.run()
    under_way.end(0)
    assert isinstance(under_way.results[gone], StorageFailed)
    assert under_way.results[there] is None
