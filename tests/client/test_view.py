"""What a client knows of its cluster never goes back, in whatever order brokers tell it."""

from __future__ import annotations

from ottla.client.errors import ServerError
from ottla.client.network.address import Address
from ottla.client.network.metadata import ClusterMetadata, Partition, Topic
from ottla.client.network.view import ClusterView
from ottla.wire.errors import ErrorCode
from ottla.wire.uuids import ZERO_UUID

OLD_ID, NEW_ID = b"o" * 16, b"n" * 16
BROKERS = {node_id: Address("127.0.0.1", node_id) for node_id in (1, 2, 3)}


def told(*leaders: tuple[int, int], topic_id: bytes = OLD_ID, brokers: dict[int, Address] = BROKERS) -> ClusterMetadata:
    """The leader and its epoch of each partition."""
    partitions = tuple(Partition(index, *leader, (), (), ()) for index, leader in enumerate(leaders))
    return ClusterMetadata("cluster", 1, brokers, {"t": Topic("t", topic_id, False, partitions)})


def leaders(view: ClusterView) -> list[tuple[int, int]]:
    topic = view.topic("t")
    assert topic is not None
    return [(partition.leader_id, partition.leader_epoch) for partition in topic.partitions]


def view_of(*answers: ClusterMetadata) -> ClusterView:
    view = ClusterView()
    for number, metadata in enumerate(answers):
        view.take(metadata, float(number))
    return view


def test_an_earlier_epoch_does_not_take_the_place_of_a_later_one() -> None:
    view = view_of(told((1, 4), (2, 7)))
    taken = view.take(told((2, 3), (3, 8)), 1.0)
    assert leaders(view) == [(1, 4), (3, 8)]
    assert taken.topics["t"] == view.topic("t")  # whoever asked is told the same


def test_in_the_same_epoch_the_later_answer_counts() -> None:
    """That there is no leader is told in the epoch of the last one."""
    assert leaders(view_of(told((1, 4)), told((-1, 4)))) == [(-1, 4)]


def test_no_partition_is_taken_away() -> None:
    assert leaders(view_of(told((1, 0), (2, 0), (3, 0)), told((1, 1), (2, 0)))) == [(1, 1), (2, 0), (3, 0)]


def test_what_is_forgotten_is_asked_for_again_and_does_not_go_back_either() -> None:
    view = view_of(told((1, 4)))
    view.forget("t")
    assert view.topic_since("t", -1.0) is None
    view.take(told((2, 3)), 1.0)
    assert leaders(view) == [(1, 4)]
    assert view.topic_since("t", 0.5) is not None


def test_a_topic_that_was_made_anew_begins_anew_and_the_old_one_does_not_come_back() -> None:
    view = view_of(told((1, 4)), told((2, 0), topic_id=NEW_ID))
    assert leaders(view) == [(2, 0)]
    taken = view.take(told((1, 5)), 2.0)
    assert leaders(view) == [(2, 0)]
    assert taken.topics["t"] == view.topic("t")


def test_without_ids_a_lower_epoch_may_be_of_another_topic() -> None:
    assert leaders(view_of(told((1, 4), topic_id=ZERO_UUID), told((2, 0), topic_id=ZERO_UUID))) == [(2, 0)]


def test_a_leader_stays_reachable_when_an_older_answer_does_not_know_it() -> None:
    view = view_of(told((3, 4)), told((1, 3), brokers={1: BROKERS[1]}))
    leader = view.leader("t", 0)
    assert leader is not None
    assert leader.leader_id == 3
    assert view.brokers == {1: BROKERS[1], 3: BROKERS[3]}


def test_a_hint_counts_if_it_is_newer() -> None:
    view = view_of(told((1, 4), (1, 4)))
    view.lead("t", 0, 2, 5)
    view.lead("t", 1, 2, 4)
    view.lead("t", 7, 2, 9)
    view.lead("unknown", 0, 2, 9)
    assert leaders(view) == [(2, 5), (1, 4)]
    view.take(told((1, 4), (3, 5)), 1.0)
    assert leaders(view) == [(2, 5), (3, 5)]


def test_a_topic_that_is_not_there_is_gone() -> None:
    view = view_of(told((1, 4)))
    missing = ServerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="t")
    view.take(told()._replace(topics={"t": missing}), 1.0)
    assert view.topic("t") is None
    assert view.is_gone("t")
    view.take(told((1, 0)), 2.0)
    assert not view.is_gone("t")


def test_an_id_that_a_broker_does_not_know_gives_way_to_the_next_answer() -> None:
    """The first broker that was asked knew the new topic, the second only the old one."""
    view = view_of(told((1, 0), topic_id=NEW_ID), told((2, 4)))
    assert leaders(view) == [(2, 4)]
    view.doubt_id("t", OLD_ID)
    assert view.topic_since("t", 0.0) is None
    view.take(told((1, 0), topic_id=NEW_ID), 2.0)
    assert leaders(view) == [(1, 0)]
    view.take(told((2, 5)), 3.0)
    assert leaders(view) == [(1, 0)]


def test_doubt_about_another_id_changes_nothing() -> None:
    view = view_of(told((1, 4)), told((2, 0), topic_id=NEW_ID))
    view.doubt_id("t", OLD_ID)
    view.take(told((1, 5)), 2.0)
    assert leaders(view) == [(2, 0)]


def test_the_id_of_a_topic_that_was_gone_does_not_come_back() -> None:
    view = view_of(told((1, 4)))
    view.take(told()._replace(topics={"t": ServerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, topic="t")}), 1.0)
    view.take(told((2, 0), topic_id=NEW_ID), 2.0)
    view.take(told((1, 5)), 3.0)
    assert leaders(view) == [(2, 0)]
