"""Changes that come twice, late, or fail: what was decided beside them is made true all the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ottla.broker.controller.applier import Applier
from ottla.controller.changes import ChangedTopicConfig, Deletion, NewPartitions, NewTopic
from ottla.controller.growing import InOrder, draining
from ottla.controller.topics import decide_expansions
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.metadata import MetadataRequestTopic
from tests.broker.opened_broker import OpenBroker, topic


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[OpenBroker]:
    alone = OpenBroker(tmp_path)
    yield alone
    alone.stop()


def applied(alone: OpenBroker, *changes: NewTopic | NewPartitions | Deletion | ChangedTopicConfig) -> list[object]:
    ended: list[list[ApiError | None]] = []

    def done(refusals: list[ApiError | None], failure: Exception | None) -> None:
        assert failure is None
        ended.append(refusals)

    alone.broker.membership.view._applier.apply(changes, done)
    alone.loop.run_until(lambda: bool(ended))
    return [None if refusal is None else refusal.code for refusal in ended[0]]


def test_what_is_there_already_is_not_made_again_nor_is_another_deleted(alone: OpenBroker) -> None:
    """A controller that lost its office may hear late of its last commit, after the next one has told of it."""
    alone.create(topic("t", 2))
    cluster = alone.broker.cluster
    node, states = cluster.topics["t"], cluster.states["t"]
    partitions = alone.broker.topics.by_name["t"].partitions
    again, more = NewTopic("t", node, {}, list(states)), NewPartitions("t", 1, node, list(states[1:]))
    assert applied(alone, again, more, Deletion("t", bytes(16), 2)) == [None, None, None]
    assert alone.broker.topics.by_name["t"].partitions == partitions
    assert all(partition.is_leader for partition in partitions)


def test_nobody_is_told_the_old_number_of_partitions_while_the_new_are_made(alone: OpenBroker) -> None:
    """Others may have told a client the new number: with the old one its records would come out of order."""
    alone.create(topic("t", 2))
    cluster = alone.broker.cluster
    asked = [CreatePartitionsTopic(name="t", count=4, assignments=None)]
    decided = decide_expansions(cluster, asked, Random(1), {"t": InOrder("murmur2", 0)})["t"]
    assert isinstance(decided, NewPartitions)
    cluster.replay(decided)
    cluster.replay(*draining(cluster.topics["t"], "t"))  # and nothing of that is made true here yet
    [told] = alone.metadata(MetadataRequestTopic(name="t")).topics
    codes = [partition.error_code for partition in told.partitions]
    assert codes == [0, 0, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE]


def test_a_mistake_with_one_change_does_not_keep_the_next_from_being_made(
    alone: OpenBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Or replicas would stay in an epoch that is over, and be fenced for as long as nothing else changes."""
    alone.create(topic("t"), topic("u"))
    configure = Applier._configure

    def fail_once(applier: Applier, name: str, texts: dict[str, str]) -> object:
        if name == "t":
            raise RuntimeError("a mistake")
        return configure(applier, name, texts)

    monkeypatch.setattr(Applier, "_configure", fail_once)
    changes = [ChangedTopicConfig(name, {"retention.ms": "5"}) for name in ("t", "u")]
    assert applied(alone, *changes) == [ErrorCode.UNKNOWN_SERVER_ERROR, None]
    assert alone.broker.topics.by_name["u"].partitions[0].log.config.retention_ms == 5
    assert "a change could not be applied" in caplog.text
