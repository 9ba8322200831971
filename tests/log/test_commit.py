"""Group commit when a sync ends in a way that nobody thought of."""

import contextlib
from functools import partial

from ottla.log.commit import GroupCommit
from ottla.log.errors import StorageFailed
from ottla.log.recovery import open_log
from ottla.log.topic_config import TopicConfig
from ottla.records.batch import read_header
from ottla.records.build import build_batch
from ottla.testing.files import Crashed, Effect, SimulatedFiles


def test_what_a_broken_round_was_to_sync_is_not_acknowledged() -> None:
    files = SimulatedFiles()
    log = open_log(files, "/data/t-0", TopicConfig(), now_ms=0)
    batch = build_batch([b"v"], timestamp=0)
    log.append(batch, read_header(batch), 0, 0)
    commit, answers = GroupCommit(), list[StorageFailed | None]()
    commit.wait_for(log, 1, answers.append)
    under_way = commit.begin()
    assert under_way is not None
    files.arm(files.operation_count + 1, Effect.CRASH)  # no error that an operating system gives
    with contextlib.suppress(Crashed):
        under_way.run()
    commit.end(under_way, 0)
    [answer] = answers
    assert isinstance(answer, StorageFailed)


def test_what_somebody_else_has_flushed_is_acknowledged() -> None:
    log = open_log(SimulatedFiles(), "/data/t-0", TopicConfig(), now_ms=0)
    batch = build_batch([b"v"], timestamp=0)
    log.append(batch, read_header(batch), 0, 0)
    commit, answers = GroupCommit(), list[StorageFailed | None]()
    commit.wait_for(log, 1, answers.append)
    log.flush(0)
    assert commit.begin() is None
    assert answers == [None]
    assert len(commit) == 0


def test_a_log_whose_files_are_gone_does_not_hold_up_the_others() -> None:
    files = SimulatedFiles()
    logs = [open_log(files, f"/data/{name}", TopicConfig(), now_ms=0) for name in ("gone-0", "there-0")]
    commit, answers = GroupCommit(), dict[str, StorageFailed | None]()
    for log in logs:
        batch = build_batch([b"v"], timestamp=0)
        log.append(batch, read_header(batch), 0, 0)
        commit.wait_for(log, 1, partial(answers.__setitem__, log.folder))
    logs[0].segments.close()
    files.rename("/data/gone-0", "/data/gone-0.deleted")
    under_way = commit.begin()
    assert under_way is not None
    under_way.run()
    commit.end(under_way, 0)
    assert isinstance(answers["/data/gone-0"], StorageFailed)
    assert answers["/data/there-0"] is None
