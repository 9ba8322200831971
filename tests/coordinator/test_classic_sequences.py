"""Members of a classic group that join, leave, fall silent and come back in any order, with a coordinator that
crashes: in each generation a partition has one owner, and what was committed stays."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla.coordinator.classic.generation import ClassicState, Generation
from ottla.coordinator.classic.group import ClassicGroup
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.offset_and_group_records import GroupMetadataKey
from tests.coordinator.classic_members import GROUP, PARTITIONS, REBALANCE_MS, SESSION_MS, ClassicWorld, subscription
from tests.coordinator.driver import Asked

MAX_SIZE = 4
CLIENTS = 5
REJOIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


class FakeClient:
    def __init__(self, number: int) -> None:
        self.instance_id = f"instance {number}" if number % 2 else None
        self.start()

    def start(self) -> None:
        """As a process that has just begun: it knows nothing."""
        self.member_id = ""
        self.generation = -1
        self.leads: list[str] | None = None  # the members, if it is to share out the work
        self.joining: Asked | None = None
        self.syncing: Asked | None = None
        self.skips = False


class ClassicGroupLife(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = ClassicWorld(max_size=MAX_SIZE, initial_rebalance_delay_ms=1000)
        self.clients = [FakeClient(number) for number in range(CLIENTS)]
        self.committed: dict[int, int] = {}
        self.owned: dict[int, dict[str, set[int]]] = {}  # what members were told to own, by generation
        self.asked: list[Asked] = []
        self.commits = 0
        self.seen = 0  # of the log
        self.kept: dict[int, list[bytes]] = {}  # the assignments in the log, by generation

    clients_drawn = st.integers(0, CLIENTS - 1)

    # What clients do

    @rule(number=clients_drawn, topics=st.sampled_from([("t",), ("t", "u")]))
    def join(self, number: int, topics: tuple[str, ...]) -> None:
        client = self.clients[number]
        if client.joining is not None or client.syncing is not None:
            return
        protocols = {"range": subscription(*topics)}
        client.joining = self.world.join(client.member_id, instance_id=client.instance_id, protocols=protocols)
        self.asked.append(client.joining)

    @rule(number=clients_drawn)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.generation < 0 or client.joining is not None or client.syncing is not None:
            return
        assignments = {}
        if client.leads is not None and not client.skips:
            members = client.leads
            shares: dict[str, list[int]] = {member: [] for member in members}
            for partition in range(PARTITIONS):
                shares[members[partition % len(members)]].append(partition)
            assignments = {member: bytes(share) for member, share in shares.items()}
        client.syncing = self.world.sync(
            client.member_id, client.generation, assignments, instance_id=client.instance_id
        )
        self.asked.append(client.syncing)

    @rule(number=clients_drawn)
    def beat(self, number: int) -> None:
        client = self.clients[number]
        if client.generation >= 0 and client.joining is None:
            code = self.world.beat(client.member_id, client.generation, instance_id=client.instance_id)
            if code in REJOIN:
                client.start()

    @rule(number=clients_drawn, partition=st.integers(0, PARTITIONS - 1))
    def commit(self, number: int, partition: int) -> None:
        client = self.clients[number]
        if client.generation < 0:
            return
        self.commits += 1
        codes = self.world.commit(
            {partition: self.commits},
            member_id=client.member_id,
            epoch=client.generation,
            instance_id=client.instance_id,
        )
        if codes == [ErrorCode.NONE]:
            self.committed[partition] = self.commits
            assert client.generation == self.world.group.generation

    @rule(number=clients_drawn)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id and GROUP in self.world.driver.machine.groups:
            self.world.leave((client.member_id, client.instance_id))
            self._collect()
            client.start()

    @rule(number=clients_drawn)
    def restart_client(self, number: int) -> None:
        """It loses what it knew; static ones come back under their names."""
        self.clients[number].start()

    @rule(numbers=st.sets(clients_drawn, min_size=1))
    def settle(self, numbers: set[int]) -> None:
        """Some clients get as far as an assignment, if nothing comes in between: chance alone hardly leads there."""
        for _ in range(3):  # an id, a generation, an assignment
            for number in sorted(numbers):
                self.join(number, ("t",))
                self._collect()
            self.world.driver.advance(1000)
            self._collect()
            for number in sorted(numbers):
                self.sync(number)
                self._collect()

    # What happens to all

    @rule(milliseconds=st.sampled_from([0, 1000, SESSION_MS // 2, SESSION_MS, REBALANCE_MS]))
    def advance(self, milliseconds: int) -> None:
        self.world.driver.advance(milliseconds)

    @rule()
    def crash(self) -> None:
        """What lasts of a group is what its record says."""
        before = self._lasting()
        self.world.driver.crash()
        if before is not None:
            assert self._lasting() == before

    def _lasting(self) -> tuple[object, ...] | None:
        """What the group is; None while it is between two generations, of which the first is lost and made again."""
        group = self.world.driver.machine.groups.get(GROUP)
        if not isinstance(group, ClassicGroup) or group.state not in (ClassicState.STABLE, ClassicState.EMPTY):
            return None
        members = [(each.member_id, each.instance_id, each.assignment, each.client) for each in group.members.values()]
        return group.state, group.current.since_ms, group.generation, group.protocol, group.leader_id, members

    @rule()
    def break_disk(self) -> None:
        """The next record cannot be written."""
        self.world.driver.is_broken = True

    def _collect(self) -> None:
        """Clients take in the answers that have come."""
        for client in self.clients:
            if client.joining is not None and not client.joining.is_waiting:
                self._joined(client, client.joining)
                client.joining = None
            if client.syncing is not None and not client.syncing.is_waiting:
                self._synced(client, client.syncing)
                client.syncing = None

    def _joined(self, client: FakeClient, asked: Asked) -> None:
        response = asked.response
        if response is None:
            return
        if response.error_code == ErrorCode.NONE:
            client.member_id, client.generation = response.member_id, response.generation_id
            is_leader = response.leader == response.member_id
            client.leads = [member.member_id for member in response.members] if is_leader else None
            client.skips = response.skip_assignment
        elif response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif response.error_code in REJOIN:
            client.start()

    def _synced(self, client: FakeClient, asked: Asked) -> None:
        response = asked.response
        if response is not None and response.error_code == ErrorCode.NONE:
            owners = self.owned.setdefault(client.generation, {})
            # An instance that came back under another id owns what it did.
            owner = client.instance_id or client.member_id
            mine = set(response.assignment)
            assert owners.setdefault(owner, mine) == mine
            others = [owned for name, owned in owners.items() if name != owner]
            assert not mine & set().union(*others), "a partition with two owners"
        elif response is not None and response.error_code in REJOIN:
            client.start()

    # What must be true

    @invariant()
    def answers_are_taken_in(self) -> None:
        self._collect()

    @invariant()
    def what_was_committed_stays(self) -> None:
        assert self.world.offsets() == self.committed

    @invariant()
    @precondition(lambda self: GROUP in self.world.driver.machine.groups)
    def the_group_is_in_order(self) -> None:
        group = self.world.group
        assert group.joining_count <= MAX_SIZE
        if (
            group.state is not ClassicState.PREPARING
        ):  # members of the last generation who do not join any more go at its end
            assert len(group.members) - len(group.static_members) <= MAX_SIZE
        assert (group.leader_id in group.members) if group.members else group.leader_id is None
        assert set(group.static_members.values()) <= set(group.members)
        assert group.pending_sync_members <= set(group.members)
        assert not group.pending_members & set(group.members)
        watched = {timer[2] for timer in self.world.driver.timers if isinstance(timer, tuple) and len(timer) == 3}
        assert watched <= set(group.members) | group.pending_members
        for member in group.members.values():
            assert member.member_id in watched or member.awaits_rebalance

    @invariant()
    @precondition(lambda self: GROUP in self.world.driver.machine.groups)
    def what_lasts_is_what_the_log_says(self) -> None:
        """Whatever a rebalance has come to."""
        values = [value for key, value in self.world.driver.records() if isinstance(key, GroupMetadataKey)]
        last = values[-1] if values else None
        assert self.world.group.kept.record() == (Generation().record() if last is None else last)

    @invariant()
    def a_log_has_one_assignment_a_generation(self) -> None:
        types = self.world.driver.machine.record_types
        log = self.world.driver.log
        for logged in log[self.seen :]:
            key = types.decode_key(logged.key or b"")
            if not isinstance(key, GroupMetadataKey):
                continue
            if logged.value is None:
                self.kept.clear()  # nobody used the group any more: its generations begin anew
                self.owned.clear()
            else:
                value = types.decode_value(key, logged.value)
                if value.members:
                    shares = sorted(member.assignment for member in value.members)
                    assert self.kept.setdefault(value.generation, shares) == shares
        self.seen = len(log)

    def teardown(self) -> None:
        """In the end everybody was answered: nobody waits for ever."""
        self.world.driver.advance(10 * REBALANCE_MS)
        assert not any(asked.is_waiting for asked in self.asked)
        assert self.world.offsets() == self.committed


TestClassicGroupLife = ClassicGroupLife.TestCase
TestClassicGroupLife.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
