"""Members of classic groups on bare sockets, each with a connection of its own, and all in one thread."""

import selectors
import time
from collections.abc import Sequence
from typing import Any

from bench.broker_servers import Server
from bench.clients_raw import RawClient, Refused, answer_of, frame_of
from ottla.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.messages.consumer_protocol import TopicPartition as AssignedPartitions
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.wire.schema import Request
from ottla.wire.versioned import encode_versioned

SESSION_MS, REBALANCE_MS = 45_000, 60_000
PATIENCE_SECONDS = 60
SILENCE_SECONDS = 1
FIRST_GROUPS = 500  # enough to meet every partition
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
PROTOCOL = {"protocol_type": "consumer", "protocol_name": "range"}


def commit_request(group: str, topic: str, member_id: str = "", generation: int = -1) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
    return OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )


def check_commit(answer: Any) -> None:
    if code := answer.topics[0].partitions[0].error_code:
        raise Refused(f"a commit: error {code}")


def await_coordinator(server: Server, topic: str) -> None:
    """Return when the broker looks after groups, in all partitions that keep them."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    waiting: list[Request] = [FindCoordinatorRequest(key="any")]
    waiting += [commit_request(f"first-{number}", topic) for number in range(FIRST_GROUPS)]
    with RawClient(server.address) as client:
        while waiting:
            answer = client.ask(waiting[-1])
            code = answer.topics[0].partitions[0].error_code if hasattr(answer, "topics") else answer.error_code
            if code == 0:
                waiting.pop()
            elif time.monotonic() > deadline:
                raise TimeoutError(f"{server.name} coordinates no groups: error {code}")
            else:
                client.ask(waiting[0])  # which makes the topic
                time.sleep(0.05)


class GroupMember:
    def __init__(self, server: Server, group: str, topic: str) -> None:
        self.client = RawClient(server.address)
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.generation = -1
        self.followers: list[str] = []  # all members, if it leads
        self.is_assigned = False

    def join(self) -> None:
        self.is_assigned = False
        metadata = encode_versioned(ConsumerProtocolSubscription(topics=[self.topic]), 0)
        self._send(
            JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
            )
        )

    def _send(self, request: Request) -> None:
        self._asked = request
        self.client.socket.sendall(frame_of(request))

    def receive(self, partition_count: int) -> None:
        """Take what came, and go on to the assignment."""
        self.client.receive_more()
        frame = self.client.take_frame()
        if frame is None:
            return
        answer = answer_of(self._asked.api, frame)
        code = answer.error_code
        if isinstance(self._asked, JoinGroupRequest):
            self.member_id = answer.member_id or self.member_id
            if code == MEMBER_ID_REQUIRED:
                self.join()
                return
            self.generation = answer.generation_id
            self.followers = [member.member_id for member in answer.members]
            if code == 0:
                self._sync(partition_count)
        elif code == REBALANCE_IN_PROGRESS:
            self.join()
        else:
            self.is_assigned = code == 0
        if code not in (0, MEMBER_ID_REQUIRED, REBALANCE_IN_PROGRESS):
            raise Refused(f"{self._asked.api.name}: error {code}")

    def _sync(self, partition_count: int) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            assignments=_shares(self.followers, self.topic, partition_count),
            **PROTOCOL,
        )
        self._send(request)

    def close(self) -> None:
        self.client.socket.close()


def _shares(members: Sequence[str], topic: str, partition_count: int) -> list[SyncGroupRequestAssignment]:
    shares = []
    for place, member_id in enumerate(members):
        mine = AssignedPartitions(topic=topic, partitions=list(range(place, partition_count, len(members))))
        data = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[mine]), 0)
        shares.append(SyncGroupRequestAssignment(member_id=member_id, assignment=data))
    return shares


def settle(members: Sequence[GroupMember], partition_count: int) -> float:
    """Let all of them join; seconds until each has its assignment, all in the same generation of their group."""
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.client.socket, selectors.EVENT_READ, member)
        started = time.perf_counter()
        for member in members:
            member.join()
        unassigned = set(members)
        while unassigned or not _are_settled(members):
            if time.perf_counter() - started > PATIENCE_SECONDS:
                raise TimeoutError("the groups do not settle")
            ready = selector.select(SILENCE_SECONDS)
            for key, _ in ready:
                key.data.receive(partition_count)
                if key.data.is_assigned:
                    unassigned.discard(key.data)
                else:
                    unassigned.add(key.data)
            if not ready:  # those who wait, wait for those who think they are done: a heartbeat would have told them
                for member in members:
                    if member.is_assigned:
                        member.join()
        return time.perf_counter() - started


def _are_settled(members: Sequence[GroupMember]) -> bool:
    if not all(member.is_assigned for member in members):
        return False
    generations: dict[str, set[int]] = {}
    for member in members:
        generations.setdefault(member.group, set()).add(member.generation)
    late = [member for member in members if member.generation < max(generations[member.group])]
    for member in late:  # a heartbeat would have told it
        member.join()
    return not late


def commits_of_all(members: Sequence[GroupMember], seconds: float) -> float:
    """Commits a second, when each member sends its next as soon as the last is answered."""
    frames = {
        member: frame_of(commit_request(member.group, member.topic, member.member_id, member.generation))
        for member in members
    }
    answered = 0
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.client.socket, selectors.EVENT_READ, member)
            member.client.socket.sendall(frames[member])
        started = time.perf_counter()
        while time.perf_counter() - started < seconds:
            for key, _ in selector.select(1):
                key.data.client.receive_more()
                answer = key.data.client.take_frame()
                if answer is not None:
                    answered += 1
                    key.data.client.socket.sendall(frames[key.data])
        taken = time.perf_counter() - started
    check_commit(answer_of(OffsetCommitRequest.api, answer or b""))
    return answered / taken
