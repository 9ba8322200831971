"""Members of both protocols come, go, stand still and die, and the coordinator falls over, in any order.

The group changes its kind back and forth. Whoever it knows works on nothing that it may give to somebody else, and
when all is quiet, everything is shared out.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.coordinator.group import Group
from ottla.wire.errors import ErrorCode
from tests.coordinator.consumer_members import GROUP, FakeMember, World, check_counts
from tests.coordinator.mixed_members import ClassicClient, settle_all

MOST_MEMBERS = 4
FIRST_PARTITIONS = 3
MOST_PARTITIONS = 6


class MixedGroupSequences(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(ConsumerSettings(assignment_interval_ms=0))
        self.world.add_topic("t", FIRST_PARTITIONS)
        self.members: list[ClassicClient | FakeMember] = []
        self.count = 0

    @initialize(is_cooperative=st.booleans())
    def begin(self, is_cooperative: bool) -> None:
        self.is_cooperative = is_cooperative

    # Members

    @precondition(lambda self: len(self.members) < MOST_MEMBERS)
    @rule(is_classic=st.booleans())
    def start(self, is_classic: bool) -> None:
        self.count += 1
        name = f"m{self.count}"
        if is_classic:
            self.members.append(ClassicClient(self.world, name, is_cooperative=self.is_cooperative))
        else:
            self.members.append(FakeMember(self.world, name, rebalance_timeout_ms=20_000))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def step(self, data: st.DataObject) -> None:
        _step(self._any(data))

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = self._any(data)
        self.members.remove(member)
        if member.member_id:
            member.leave()

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        self.members.remove(self._any(data))

    def _any(self, data: st.DataObject) -> ClassicClient | FakeMember:
        return self.members[data.draw(st.integers(0, len(self.members) - 1))]

    # The world

    @rule(milliseconds=st.sampled_from([0, 1000, 9_000, 31_000]))
    def wait(self, milliseconds: int) -> None:
        self.world.driver.advance(milliseconds)

    @rule()
    def grow(self) -> None:
        topic = self.world.topics.by_name["t"]
        if topic.partition_count < MOST_PARTITIONS:
            topic.partition_count += 1
            self.world.change_topic("t")

    @rule()
    def crash(self) -> None:
        self.world.crash()

    # What is always true

    @property
    def group(self) -> Group | None:
        return self.world.driver.machine.groups.get(GROUP)

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        if isinstance(self.group, ConsumerGroup):
            check_counts(self.group)
            held = [each for member in self.group.members.values() for each in member.progress.partitions()]
            assert len(held) == len(set(held))

    @invariant()
    def nobody_works_on_what_may_be_given_to_others(self) -> None:
        group = self.group
        if isinstance(group, ConsumerGroup):
            for member in self.members:
                known = group.members.get(member.member_id)
                if known is not None:
                    held = {number for _, number in known.progress.partitions()}
                    assert set(member.numbers) <= held, f"{member.numbers} of {held}"

    @invariant()
    def a_generation_shares_out_once(self) -> None:
        group = self.group
        if isinstance(group, ClassicGroup):
            numbers = [
                number
                for member in self.members
                if isinstance(member, ClassicClient)
                and member.member_id in group.members
                and member.generation == group.generation
                for number in member.numbers
            ]
            assert len(numbers) == len(set(numbers))

    def teardown(self) -> None:
        for _ in range(40):  # those who died are found out
            self.world.driver.advance(1500)
            for member in self.members:
                _step(member)
        settle_all(self.world, *self.members)
        self.world.driver.advance(1500)
        settle_all(self.world, *self.members)
        if not self.members:
            return
        is_classic = all(isinstance(member, ClassicClient) for member in self.members)
        numbers = sorted(number for member in self.members for number in member.numbers)
        # Of a classic group, a client looks after partitions that are new.
        count = len(numbers) if is_classic else self.world.topics.by_name["t"].partition_count
        assert count >= FIRST_PARTITIONS
        assert numbers == list(range(count))
        assert isinstance(self.group, ClassicGroup if is_classic else ConsumerGroup)
        assert all(member.refused is None for member in self.members if isinstance(member, ClassicClient))


def _step(member: ClassicClient | FakeMember) -> None:
    if isinstance(member, ClassicClient):
        member.step()
    elif member.epoch <= 0 or member.acknowledge().error_code:
        assert member.join().error_code == ErrorCode.NONE


TestMixedGroupSequences = MixedGroupSequences.TestCase
TestMixedGroupSequences.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
