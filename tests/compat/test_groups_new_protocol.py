"""Groups whose members are told by the broker what to read (KIP-848), with confluent-kafka, which has it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.compat.confluent_client import ConfluentClient
from tests.compat.group_consumers import Membership
from tests.compat.member import Join, delivered_once, settled
from tests.compat.numbered_topic import PARTITIONS, NumberedTopic
from tests.compat.reporting_process import eventually

LIBRARY = "confluent-kafka"


@pytest.fixture
def consumer(membership: Membership) -> Membership:
    return replace(membership, protocol="consumer")


def test_a_member_that_joins_takes_only_its_share(consumer: Membership, filled: NumberedTopic, join: Join) -> None:
    first = join(LIBRARY, consumer)
    assert settled([first], filled.name, PARTITIONS) == [{0, 1, 2, 3}]
    filled.write(20)
    delivered_once([first], filled.values)
    first.commit()
    second = join(LIBRARY, consumer)
    shares = settled([first, second], filled.name, PARTITIONS)
    assert [places for what, places in first.rebalances if what == "revoked"] == [
        {(filled.name, partition) for partition in shares[1]}
    ]
    after = set(filled.write(20))
    delivered_once([first, second], filled.values)
    owners = [
        {partition for _, partition, _, value in member.delivered if value in after} for member in (first, second)
    ]
    assert owners == shares


def test_a_member_that_leaves_gives_its_partitions_back(
    consumer: Membership, filled: NumberedTopic, join: Join
) -> None:
    first, second = join(LIBRARY, consumer), join(LIBRARY, consumer)
    settled([first, second], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([first, second], filled.values)
    second.commit()
    second.leave()
    assert settled([first], filled.name, PARTITIONS) == [{0, 1, 2, 3}]
    filled.write(20)
    delivered_once([first, second], filled.values)


def test_the_partitions_of_a_killed_member_go_to_another(
    consumer: Membership, filled: NumberedTopic, join: Join
) -> None:
    survivor, victim = join(LIBRARY, consumer), join(LIBRARY, consumer)
    settled([survivor, victim], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([survivor, victim], filled.values)
    victim.commit()
    victim.kill()
    assert settled([survivor], filled.name, PARTITIONS) == [{0, 1, 2, 3}]
    filled.write(20)
    delivered_once([survivor, victim], filled.values)


def test_a_member_that_hangs_loses_its_partitions_and_comes_back(
    consumer: Membership, filled: NumberedTopic, join: Join
) -> None:
    brief = replace(consumer, poll_interval_ms=1_500)
    awake, asleep = join(LIBRARY, brief), join(LIBRARY, brief)
    settled([awake, asleep], filled.name, PARTITIONS)
    asleep.sleep()
    eventually(lambda: awake.owners_of(filled.name) == {0, 1, 2, 3}, lambda: awake.lines[-5:])
    filled.write(20)
    delivered_once([awake], filled.values)
    awake.commit()
    asleep.wake()
    settled([awake, asleep], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([awake, asleep], filled.values)
    assert asleep.delivered


def test_a_static_member_that_is_back_in_time_has_its_partitions(
    consumer: Membership, filled: NumberedTopic, join: Join
) -> None:
    still = join(LIBRARY, replace(consumer, instance="still"))
    restarted = join(LIBRARY, replace(consumer, instance="restarted"))
    shares = settled([still, restarted], filled.name, PARTITIONS)
    filled.write(20)
    delivered_once([still, restarted], filled.values)
    restarted.commit()
    before = list(still.rebalances)
    restarted.leave()  # says that it will return
    back = join(LIBRARY, replace(consumer, instance="restarted"))
    assert settled([still, back], filled.name, PARTITIONS) == shares
    filled.write(20)
    delivered_once([still, restarted, back], filled.values)
    assert still.rebalances == before


def test_partitions_that_are_added_find_an_owner(consumer: Membership, filled: NumberedTopic, join: Join) -> None:
    members = [join(LIBRARY, consumer), join(LIBRARY, consumer)]
    settled(members, filled.name, PARTITIONS)
    filled.expand(PARTITIONS + 2)
    shares = settled(members, filled.name, PARTITIONS + 2)
    filled.write(30)
    delivered_once(members, filled.values)
    assert [{partition for _, partition, _, _ in member.delivered} for member in members] == shares


def test_a_topic_that_comes_later_is_read(
    consumer: Membership, filled: NumberedTopic, writer: ConfluentClient, join: Join
) -> None:
    later = f"{filled.name}-later"
    member = join(LIBRARY, replace(consumer, topics=[filled.name, later]))
    settled([member], filled.name, PARTITIONS)
    other = NumberedTopic(writer, later, 2)
    assert settled([member], other.name, 2) == [{0, 1}]
    filled.write(8)
    other.write(8)
    delivered_once([member], filled.values + other.values)


def test_a_pattern_is_matched_by_the_broker(
    consumer: Membership, filled: NumberedTopic, writer: ConfluentClient, join: Join
) -> None:
    matching = NumberedTopic(writer, f"{filled.name}-x1", 2)
    other = NumberedTopic(writer, f"{filled.name}-y", 1)
    member = join(LIBRARY, replace(consumer, pattern=f"{filled.name}(-x[0-9])?$"))
    settled([member], filled.name, PARTITIONS)
    assert settled([member], matching.name, 2) == [{0, 1}]
    for topic in (filled, matching, other):
        topic.write(8)
    delivered_once([member], filled.values + matching.values)
    # The broker looks for new topics at most every ten seconds.
    later = NumberedTopic(writer, f"{filled.name}-x2", 1)
    assert settled([member], later.name, 1) == [{0}]


def test_a_group_changes_its_protocol_while_it_works(
    membership: Membership, consumer: Membership, filled: NumberedTopic, join: Join
) -> None:
    """One member after the other is replaced by one of the other protocol, there and back."""
    members = [join(LIBRARY, membership)]
    settled(members, filled.name, PARTITIONS)
    for protocol in (consumer, membership):
        filled.write(12)
        delivered_once(members, filled.values)
        members[-1].commit()
        members.append(join(LIBRARY, protocol))
        settled(members[-2:], filled.name, PARTITIONS)
        filled.write(12)
        delivered_once(members, filled.values)
        for member in members[-2:]:
            member.commit()
        members[-2].leave()
        settled(members[-1:], filled.name, PARTITIONS)
    filled.write(12)
    delivered_once(members, filled.values)
