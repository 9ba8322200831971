"""Groups of members of every make: who owns what, and who is given which record, as members come, go, die and hang."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.compat.confluent_client import ConfluentClient
from tests.compat.group_consumers import CONSUMERS, Membership
from tests.compat.member import Join, delivered_once, settled
from tests.compat.numbered_topic import PARTITIONS, NumberedTopic
from tests.compat.reporting_process import eventually

LONG_POLL_MS = 5_000
COOPERATIVE = ["confluent-kafka", "kafka-python"]


@pytest.fixture(params=CONSUMERS)
def library(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_members_share_the_partitions_as_they_come_and_leave(
    library: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    first = join(library, membership)
    assert settled([first], filled.name, PARTITIONS) == [{0, 1, 2, 3}]
    second = join(library, membership)
    shares = settled([first, second], filled.name, PARTITIONS)
    filled.write(40)
    delivered_once([first, second], filled.values)
    assert [{partition for _, partition, _, _ in member.delivered} for member in (first, second)] == shares
    for member in (first, second):
        member.commit()
    second.leave()
    assert settled([first], filled.name, PARTITIONS) == [{0, 1, 2, 3}]
    filled.write(20)
    delivered_once([first, second], filled.values)


def test_the_partitions_of_a_killed_member_go_to_another(
    library: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    """What the dead one had committed does not come again; what it had not does."""
    brief = replace(membership, session_ms=1_000)
    members = [join(library, brief), join(library, brief)]
    settled(members, filled.name, PARTITIONS)
    filled.write(20)
    delivered_once(members, filled.values)
    survivor, victim = members
    victim.commit()
    after = filled.write(20)
    delivered_once(members, filled.values)
    survivor.commit()
    victim.kill()
    settled([survivor], filled.name, PARTITIONS)
    again = [value for value in victim.values if value in after]
    assert again
    eventually(lambda: len(survivor.values) >= 20 + len(again), lambda: survivor.values)
    assert sorted(survivor.values) == sorted(set(filled.values) - set(victim.values) | set(again))


def test_a_member_that_hangs_loses_its_partitions_and_comes_back(
    library: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    """Its heartbeats go on: it is the time between its polls that tells."""
    brief = replace(membership, poll_interval_ms=1_500, session_ms=1_400)
    awake, asleep = join(library, brief), join(library, brief)
    settled([awake, asleep], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([awake, asleep], filled.values)
    for member in (awake, asleep):
        member.commit()
    asleep.sleep()
    eventually(lambda: awake.owners_of(filled.name) == {0, 1, 2, 3}, lambda: awake.lines[-5:])
    filled.write(20)
    delivered_once([awake, asleep], filled.values)
    awake.commit()
    before = len(asleep.delivered)
    asleep.wake()
    settled([awake, asleep], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([awake, asleep], filled.values)
    assert len(asleep.delivered) > before


@pytest.mark.parametrize("library", COOPERATIVE)
def test_eager_members_give_up_everything_when_one_joins(
    library: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    first = join(library, membership)
    [everything] = settled([first], filled.name, PARTITIONS)
    second = join(library, membership)
    settled([first, second], filled.name, PARTITIONS)
    assert ("revoked", {(filled.name, partition) for partition in everything}) in first.rebalances


@pytest.mark.parametrize("library", COOPERATIVE)
def test_cooperative_members_give_up_only_what_another_gets(
    library: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    cooperative = replace(membership, assignor="cooperative-sticky")
    first = join(library, cooperative)
    settled([first], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([first], filled.values)
    first.commit()
    second = join(library, cooperative)
    _kept, given = settled([first, second], filled.name, PARTITIONS)
    revoked = [places for what, places in first.rebalances if what == "revoked"]
    assert revoked == [{(filled.name, partition) for partition in given}]
    filled.write(20)
    delivered_once([first, second], filled.values)


def test_a_static_member_that_is_back_in_time_disturbs_nobody(
    library: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    still = join(library, replace(membership, instance="still"))
    restarted = join(library, replace(membership, instance="restarted"))
    shares = settled([still, restarted], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([still, restarted], filled.values)
    restarted.commit()
    before = list(still.rebalances)
    restarted.kill()
    back = join(library, replace(membership, instance="restarted"))
    assert settled([still, back], filled.name, PARTITIONS) == shares
    filled.write(20)
    delivered_once([still, restarted, back], filled.values)
    assert still.rebalances == before


@pytest.mark.parametrize(
    ("committer", "resumer"),
    [("confluent-kafka", "kafka-python"), ("kafka-python", "aiokafka"), ("aiokafka", "confluent-kafka")],
)
def test_a_group_goes_on_where_another_library_left_it(
    committer: str, resumer: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    first = join(committer, membership)
    filled.write(20)
    delivered_once([first], filled.values)
    first.commit()
    first.leave()
    after = filled.write(20)
    second = join(resumer, membership)
    delivered_once([second], after)


def test_partitions_that_are_added_find_an_owner(
    library: str, membership: Membership, filled: NumberedTopic, join: Join
) -> None:
    patient = replace(membership, poll_ms=LONG_POLL_MS)
    members = [join(library, patient), join(library, patient)]
    settled(members, filled.name, PARTITIONS)
    filled.expand(PARTITIONS + 2)
    shares = settled(members, filled.name, PARTITIONS + 2)
    filled.write(30)
    delivered_once(members, filled.values)
    assert [{partition for _, partition, _, _ in member.delivered} for member in members] == shares


def test_a_new_topic_of_the_pattern_is_subscribed(
    library: str, membership: Membership, filled: NumberedTopic, writer: ConfluentClient, join: Join
) -> None:
    member = join(library, replace(membership, pattern=f"{filled.name}.*", poll_ms=LONG_POLL_MS))
    settled([member], filled.name, PARTITIONS)
    other = NumberedTopic(writer, f"{filled.name}-other", 2)
    assert settled([member], other.name, 2) == [{0, 1}]
    filled.write(8)
    other.write(8)
    delivered_once([member], filled.values + other.values)
