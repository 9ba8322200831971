"""Partitions of topics that grow in order are held back from groups, of both protocols, until those have read on."""

from __future__ import annotations

from ottla.coordinator.group import Committer, OffsetToCommit
from ottla.coordinator.offsets.commit import commit
from ottla.records.growth import Growth, Phase
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
)
from ottla.wire.versioned import encode_versioned
from tests.coordinator.classic_members import ClassicWorld
from tests.coordinator.consumer_members import FakeMember, World, settle

FENCES = (Growth(2, 4, fences={0: 10, 1: 20}),)


def assignment(*indexes: int, user_data: bytes | None = None) -> bytes:
    partitions = [TopicPartition(topic="t", partitions=list(indexes))]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=partitions, user_data=user_data), 1)


def given(data: bytes) -> list[int]:
    return sorted(index for each in decode_assignment(data).assigned_partitions for index in each.partitions)


class Classic(ClassicWorld):
    """A group with one member, which assigns everything to itself."""

    def __init__(self, growths: tuple[Growth, ...]) -> None:
        super().__init__()
        self.grow(growths)
        [self.member] = self.stable(1)

    def grow(self, growths: tuple[Growth, ...]) -> None:
        self.topics.by_name["t"].growths = growths
        self.driver.ask(lambda machine, operation, _reply: machine.topics_changed(operation, {"t"}))

    def share(self, data: bytes) -> list[int]:
        """Join and sync once more."""
        self.join(self.member)
        return given(self.sync(self.member, self.group.generation, {self.member: data}).response.assignment)

    def sign(self) -> ErrorCode:
        return self.beat(self.member, self.group.generation)

    def reads(self, **offsets: int) -> None:
        places = {int(name[1:]): offset for name, offset in offsets.items()}
        codes = self.commit(places, member_id=self.member, epoch=self.group.generation)
        assert set(codes) == {ErrorCode.NONE}


def test_a_classic_group_is_given_a_partition_when_it_has_committed_the_parent() -> None:
    world = Classic(FENCES)
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1]
    assert world.sign() is ErrorCode.NONE
    world.reads(p0=9, p1=19)
    assert world.sign() is ErrorCode.NONE
    world.reads(p0=10)
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1, 2]
    assert world.sign() is ErrorCode.NONE
    world.reads(p1=20)
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1, 2, 3]
    assert world.sign() is ErrorCode.NONE


def test_offsets_of_a_transaction_count_when_it_is_committed() -> None:
    world = Classic(FENCES)
    world.share(assignment(0, 1, 2, 3))
    producer = (7, 0)
    world.commit({0: 10, 1: 20}, member_id=world.member, epoch=world.group.generation, producer=producer)
    assert world.sign() is ErrorCode.NONE
    world.driver.machine.replay_marker(7, True)
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_coordinator_that_was_loaded_anew_finds_out_what_is_missing() -> None:
    world = Classic(FENCES)
    world.share(assignment(0, 1, 2, 3))
    world.reads(p0=10, p1=20)
    world.driver.crash()
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.share(assignment(0, 1)) == [0, 1]  # its leader does not know of the others yet
    assert world.sign() is ErrorCode.NONE


def test_an_assignment_that_is_sent_again_is_not_taken_for_what_was_given() -> None:
    """The leader has not heard of the answer: by now it may read more than it was given."""
    world = Classic(FENCES)
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1]
    world.reads(p0=10, p1=20)
    for generation in (world.group.generation, world.group.generation - 1):
        world.sync(world.member, generation, {world.member: assignment(0, 1, 2, 3)})
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1, 2, 3]


def test_a_leader_that_assigns_nothing_is_not_asked_for_ever() -> None:
    world = Classic(FENCES)
    world.share(assignment(0, 1, 2, 3))
    world.reads(p0=10, p1=20)
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS
    world.join(world.member)
    world.sync(world.member, world.group.generation)
    assert world.sign() is ErrorCode.NONE


def test_a_member_that_was_given_too_much_gives_it_back() -> None:
    """The coordinator heard of the growth after the leader of the group."""
    world = Classic(())
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1, 2, 3]
    world.grow((Growth(2, 4, phase=Phase.DRAINING),))
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1]
    world.grow((Growth(2, 4),))  # no fence: the parents were empty
    assert world.sign() is ErrorCode.REBALANCE_IN_PROGRESS
    assert world.share(assignment(0, 1, 2, 3)) == [0, 1, 2, 3]


def test_assignments_with_data_of_their_own_stay_as_they_are() -> None:
    world = Classic(FENCES)
    assert world.share(assignment(0, 1, 2, 3, user_data=b"mine")) == [0, 1, 2, 3]
    world.join(world.member)
    strange = world.sync(world.member, world.group.generation, {world.member: b"?"}).response
    assert strange.assignment == b"?"


def test_data_of_the_subscription_does_not_keep_an_assignment_as_it_is() -> None:
    """librdkafka's cooperative-sticky sends what each member told along with what it is assigned."""
    world = Classic(FENCES)
    told = encode_versioned(ConsumerProtocolSubscription(topics=["t"], user_data=b"had 0 and 1"), 1)
    world.join(world.member, protocols={"range": told})
    data = assignment(0, 1, 2, 3, user_data=b"had 0 and 1")
    answer = world.sync(world.member, world.group.generation, {world.member: data}).response
    assert given(answer.assignment) == [0, 1]
    assert decode_assignment(answer.assignment).user_data == b"had 0 and 1"


NONE = ErrorCode.NONE
GROWING = (Growth(2, 4, phase=Phase.DRAINING),)


def test_a_group_that_was_there_begins_new_partitions_at_their_start() -> None:
    """Wherever it would begin in a topic that it does not know: it would lose what was written since."""
    world = Classic(())
    world.reads(p0=10)
    world.grow(GROWING)
    assert world.fetch(range(4)) == {0: (10, NONE), 1: (-1, NONE), 2: (0, NONE), 3: (-1, NONE)}
    world.reads(p1=20)  # it has begun while the topic grows
    world.grow((GROWING[0]._replace(phase=Phase.FENCING),))
    world.reads(p2=4)
    world.grow(FENCES)
    assert world.fetch(range(4)) == {0: (10, NONE), 1: (20, NONE), 2: (4, NONE), 3: (0, NONE)}


def test_a_group_that_comes_later_begins_where_its_members_say() -> None:
    """Most of all where that is the end: it would read everything since the topic has grown."""
    world = Classic(FENCES)
    world.reads(p0=10, p1=25)
    world.grow((FENCES[0]._replace(fences={0: 10}),))  # retention has passed the other one
    world.driver.crash()
    assert world.fetch(range(4)) == {0: (10, NONE), 1: (25, NONE), 2: (-1, NONE), 3: (-1, NONE)}


def test_a_coordinator_that_takes_over_while_a_topic_grows_notes_where_groups_begin() -> None:
    world = Classic(())
    world.reads(p0=10, p1=20)
    world.topics.by_name["t"].growths = GROWING  # which the one before has not seen
    world.driver.crash()
    assert world.fetch(range(2, 4)) == {2: (0, NONE), 3: (0, NONE)}


def test_offsets_of_a_topic_that_was_deleted_begin_nothing() -> None:
    world = Classic(())
    world.reads(p0=10)
    world.topics.by_name["t"].topic_id = b"another id......"
    world.grow(GROWING)
    assert world.fetch([2]) == {2: (-1, NONE)}


def test_a_group_that_commits_in_a_transaction_has_begun() -> None:
    world = Classic(())
    world.commit({0: 10}, member_id=world.member, epoch=world.group.generation, producer=(7, 0))
    world.grow(GROWING)
    world.driver.machine.replay_marker(7, True)
    assert world.fetch(range(4)) == {0: (10, NONE), 1: (-1, NONE), 2: (0, NONE), 3: (-1, NONE)}


def test_a_consumer_group_is_given_a_partition_when_it_has_committed_the_parent() -> None:
    world = World()
    topic_id = world.add_topic("t", 2)
    one, two = FakeMember(world, "one"), FakeMember(world, "two")
    one.join()
    two.join()
    settle(one, two)
    topic = world.topics.by_name["t"]
    topic.partition_count, topic.growths = 4, FENCES
    world.change_topic("t")
    settle(one, two)
    assert sorted(one.numbers + two.numbers) == [0, 1]
    epoch = world.group.epoch
    settle(one, two)
    assert world.group.epoch == epoch
    _commit(world, topic_id, one if 0 in one.numbers else two, 0, 10)
    settle(one, two)
    assert sorted(one.numbers + two.numbers) == [0, 1, 2]
    _commit(world, topic_id, one if 1 in one.numbers else two, 1, 20)
    world.crash()
    settle(one, two)
    assert sorted(one.numbers + two.numbers) == [0, 1, 2, 3]
    epoch = world.group.epoch
    settle(one, two)
    assert world.group.epoch == epoch


def _commit(world: World, topic_id: bytes, member: FakeMember, index: int, offset: int) -> None:
    wanted = [OffsetToCommit("t", topic_id, index, offset, -1, None)]
    committer = Committer(member.member_id, None, member.epoch, 9, False)
    asked = world.driver.ask(
        lambda machine, operation, reply: operation.answer(
            reply, commit(machine, operation, world.group.group_id, committer, wanted)
        )
    )
    assert asked.response == [ErrorCode.NONE]
