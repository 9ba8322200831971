"""Members come, go, crash and miss answers, topics change, and the coordinator falls over, in any order.

At every moment no two members work on the same partition, and a machine loaded from the log is the one that wrote it.
When all is quiet, everything is shared out.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.settings import ConsumerSettings
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.coordinator.consumer_members import GROUP, FakeMember, World, check_counts, settle

NAMES = ("a", "b", "c", "d", "static")
TOPICS = ("t", "u", "v")
MEMBERS = st.sampled_from(NAMES)
SUBSCRIPTIONS = st.lists(st.sampled_from(TOPICS), max_size=3, unique=True)
REGEXES = st.sampled_from(["", "t|u", "[uv]"])
SUPPORTED = {ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}


class ConsumerGroupSequences(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(ConsumerSettings(assignment_interval_ms=1000))
        self.world.add_topic("t", 4)
        self.members: dict[str, FakeMember] = {}
        self.count = 0

    # Members

    @rule(name=MEMBERS, topics=SUBSCRIPTIONS, regex=REGEXES)
    def start(self, name: str, topics: list[str], regex: str) -> None:
        """A client begins anew; what it worked on before, it does not any more."""
        fields = {"subscribed_topic_regex": regex, "rebalance_timeout_ms": 20_000}
        if name == "static":
            fields["instance_id"] = "i"
            if name in self.members:
                self.members[name].leave(-2)
        self.count += 1
        member = FakeMember(self.world, f"{name}-{self.count}" if name == "static" else name, topics, **fields)
        self.members[name] = member
        code = member.join().error_code
        assert code in (ErrorCode.NONE, ErrorCode.UNRELEASED_INSTANCE_ID)
        if code:
            del self.members[name]

    @precondition(lambda self: self.members)
    @rule(data=st.data(), tells=st.booleans())
    def beat(self, data: st.DataObject, tells: bool) -> None:
        member = self._any(data)
        self._after(member, (member.acknowledge() if tells else member.beat()).error_code)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topics=SUBSCRIPTIONS, regex=REGEXES)
    def subscribe(self, data: st.DataObject, topics: list[str], regex: str) -> None:
        member = self._any(data)
        response = member.beat(subscribed_topic_names=topics, subscribed_topic_regex=regex)
        self._after(member, response.error_code)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), tells=st.booleans())
    def miss_an_answer(self, data: st.DataObject, tells: bool) -> None:
        """It sends a heartbeat and never learns what came of it; next it tells everything."""
        member = self._any(data)
        owned = member.told_owned() if tells else None
        self.world.beat(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP, member_id=member.member_id, member_epoch=member.epoch, topic_partitions=owned
            )
        )
        told = member.beat(
            rebalance_timeout_ms=20_000, subscribed_topic_names=member.topics, topic_partitions=member.told_owned()
        )
        self._after(member, told.error_code)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), epoch=st.sampled_from([-1, -2]))
    def leave(self, data: st.DataObject, epoch: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.members)))
        member = self.members.pop(name)
        code = member.leave(epoch if name == "static" else -1).error_code
        assert code in SUPPORTED

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """It is just not there any more."""
        self.members.pop(data.draw(st.sampled_from(sorted(self.members))))

    def _any(self, data: st.DataObject) -> FakeMember:
        return self.members[data.draw(st.sampled_from(sorted(self.members)))]

    def _after(self, member: FakeMember, code: int) -> None:
        """One that is fenced lets go of everything and joins again."""
        assert code in SUPPORTED
        if code:
            joined = member.join().error_code
            if joined == ErrorCode.UNRELEASED_INSTANCE_ID:
                self.members = {name: each for name, each in self.members.items() if each is not member}

    # The world

    @rule(milliseconds=st.sampled_from([0, 1000, 11_000, 25_000]))
    def wait(self, milliseconds: int) -> None:
        self.world.driver.advance(milliseconds)

    @rule(name=st.sampled_from(TOPICS), count=st.integers(1, 6))
    def change_topic(self, name: str, count: int) -> None:
        topic = self.world.topics.by_name.get(name)
        if topic is None:
            self.world.add_topic(name, count)
        elif count > topic.partition_count:
            topic.partition_count = count
            self.world.change_topic(name)
        else:
            self.world.topics.remove(name)
            self.world.change_topic(name)

    @rule()
    def crash(self) -> None:
        self.world.crash()

    # What is always true

    @property
    def group(self) -> ConsumerGroup | None:
        group = self.world.driver.machine.groups.get(GROUP)
        return group if isinstance(group, ConsumerGroup) else None

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        if self.group is None:
            return
        held = [partition for member in self.group.members.values() for partition in member.progress.partitions()]
        assert len(held) == len(set(held))

    @invariant()
    def nobody_works_on_what_may_be_given_to_others(self) -> None:
        for member in self.members.values():
            known = self.group.members.get(member.member_id) if self.group is not None else None
            if known is not None:
                works_on = {(topic_id, number) for topic_id, numbers in member.owned.items() for number in numbers}
                assert works_on <= set(known.progress.partitions())

    @invariant()
    def epochs_are_in_order(self) -> None:
        if self.group is not None:
            assert self.group.target.epoch <= self.group.epoch
            for member in self.group.members.values():
                assert member.progress.epoch <= self.group.target.epoch

    @invariant()
    def what_is_counted_is_what_members_tell(self) -> None:
        if self.group is not None:
            check_counts(self.group)

    def teardown(self) -> None:
        """When all is quiet, what is subscribed to is shared out among those who live."""
        members = list(self.members.values())
        for _ in range(8):  # those who died are found out, and expressions resolved
            self.world.driver.advance(15_000)
            for member in members:
                self._after(member, member.acknowledge().error_code)
        members = list(self.members.values())
        self.world.driver.advance(1000)
        settle(*members)
        if self.group is None or not members:
            return
        assert self.group.state_name == "Stable"
        topics = self.world.topics.by_name
        wanted = {name for name in self.group.subscriptions.topic_names if name in topics}
        shared = [(topic_id, number) for each in members for topic_id in each.owned for number in each.owned[topic_id]]
        assert sorted(shared) == sorted(
            (topics[name].topic_id, number) for name in wanted for number in range(topics[name].partition_count)
        )


TestConsumerGroupSequences = ConsumerGroupSequences.TestCase
TestConsumerGroupSequences.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
