"""Group commit when a sync ends in a way that nobody thought of."""

import contextlib

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
