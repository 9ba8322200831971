"""A group of several members is moved to the new protocol and back, one member at a time, as operators do it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ottla.client import Admin
from tests.compat.group_consumers import Membership
from tests.compat.killable import KillableBroker
from tests.compat.member import Join, Member, delivered_once, settled
from tests.compat.numbered_topic import PARTITIONS, NumberedTopic
from tests.compat.reporting_process import eventually

NEW = "confluent-kafka"


def work(members: Sequence[Member], everybody: Sequence[Member], filled: NumberedTopic) -> None:
    """Let those who are there read something, and commit it."""
    filled.write(12)
    delivered_once(everybody, filled.values)
    for member in members:
        member.commit()


def at_rest(members: Sequence[Member], membership: Membership, topic: str) -> None:
    """Returns when the members have what the group says they have, and nothing is about to change.

    A group of both protocols may look settled to its members and go on: they come to their shares one by one.
    """
    with Admin(membership.bootstrap) as admin:

        def is_at_rest() -> bool:
            [group] = admin.describe_groups([membership.group])
            shares = [{partition for _, partition in member.assignment} for member in group.members]
            owned = [member.owners_of(topic) for member in members]
            return group.state == "Stable" and sorted(map(sorted, shares)) == sorted(map(sorted, owned))

        settled(members, topic, PARTITIONS)
        eventually(is_at_rest, lambda: admin.describe_groups([membership.group]))


# Not librdkafka's cooperative-sticky: it puts data of its own into assignments, and neither Apache Kafka nor Ottla
# upgrades a group that would lose such data.
@pytest.mark.parametrize(
    ("library", "assignor"), [("confluent-kafka", "range"), ("kafka-python", "cooperative-sticky")]
)
def test_every_record_is_read_once_while_members_are_replaced(
    membership: Membership, filled: NumberedTopic, join: Join, library: str, assignor: str
) -> None:
    classic = replace(membership, assignor=assignor)
    consumer = replace(membership, protocol="consumer")
    members = [join(library, classic), join(library, classic)]
    everybody = list(members)
    at_rest(members, membership, filled.name)
    work(members, everybody, filled)
    for make, kind in [(NEW, consumer), (NEW, consumer), (library, classic), (library, classic)]:
        members.pop(0).leave()
        members.append(join(make, kind))
        everybody.append(members[-1])
        at_rest(members, membership, filled.name)
        work(members, everybody, filled)


def test_a_group_of_both_protocols_survives_the_death_of_its_broker(
    membership: Membership, filled: NumberedTopic, join: Join, killable: KillableBroker
) -> None:
    members = [join(NEW, membership), join(NEW, replace(membership, protocol="consumer"))]
    settled(members, filled.name, PARTITIONS)
    work(members, members, filled)
    killable.restart()
    filled.write(12)
    eventually(
        lambda: set(filled.values) <= {value for member in members for value in member.values},
        lambda: [member.lines[-5:] for member in members],
    )
    settled(members, filled.name, PARTITIONS)
    read = Counter(value for member in members for value in member.values)
    assert [read[value] for value in filled.values[:12]] == [1] * 12, "what was committed is not read again"
