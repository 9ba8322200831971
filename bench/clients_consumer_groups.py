"""Members of consumer groups on bare sockets, each with a connection of its own, and all in one thread."""

import selectors
import time
import uuid
from collections.abc import Sequence
from typing import Any

from bench.broker_servers import Server
from bench.clients_groups import PATIENCE_SECONDS, REBALANCE_MS
from bench.clients_raw import RawClient, Refused, answer_of, frame_of
from ottla.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

GROUP_RESOURCE = 32
SET = 0
LEAVES = -1  # in place of an epoch


def assign_at_once(client: RawClient, group: str) -> None:
    """Let the group compute an assignment with every change: waiting is not what is measured."""
    interval = AlterableConfig(name="consumer.assignment.interval.ms", config_operation=SET, value="0")
    resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name=group, configs=[interval])
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    if code := answer.responses[0].error_code:
        raise Refused(f"the setting of a group: error {code}")


def check_heartbeat(answer: Any) -> None:
    if answer.error_code:
        raise Refused(f"ConsumerGroupHeartbeat: error {answer.error_code}")


class ConsumerMember:
    """Tells with every heartbeat what it has, and lets go at once of what it is to let go of."""

    def __init__(self, server: Server, group: str, topic: str) -> None:
        self.client = RawClient(server.address)
        self.group = group
        self.topic = topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: list[TopicPartitions] = []

    @property
    def partition_count(self) -> int:
        return sum(len(part.partitions) for part in self.owned)

    def join(self) -> None:
        self.epoch, self.owned = 0, []
        self._send(rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=[self.topic])

    def beat(self) -> None:
        self._send()

    def _send(self, **fields: Any) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            topic_partitions=self.owned,
            **fields,
        )
        self.client.socket.sendall(frame_of(request))

    def receive(self) -> bool:
        """Take what came; whether that was an answer."""
        self.client.receive_more()
        frame = self.client.take_frame()
        if frame is None:
            return False
        answer = answer_of(ConsumerGroupHeartbeatRequest.api, frame)
        check_heartbeat(answer)
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions
        return True

    def leave(self) -> None:
        self.epoch, self.owned = LEAVES, []
        check_heartbeat(self.client.ask(self.heartbeat_request()))

    def heartbeat_request(self) -> ConsumerGroupHeartbeatRequest:
        """One that brings nothing new."""
        return ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=self.epoch)

    def close(self) -> None:
        self.client.socket.close()


def settle(members: Sequence[ConsumerMember], partition_count: int) -> float:
    """Let all of them join; seconds until everything is shared out and all are in the same epoch.

    Each sends its next heartbeat as soon as the last is answered.
    """
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.client.socket, selectors.EVENT_READ, member)
        started = time.perf_counter()
        for member in members:
            member.join()
        waiting = set(members)
        is_settled = False
        while waiting:
            if time.perf_counter() - started > PATIENCE_SECONDS:
                raise TimeoutError("the group does not settle")
            for key, _ in selector.select(1):
                member = key.data
                if not member.receive():
                    continue
                is_settled = is_settled or _is_settled(members, partition_count)
                if is_settled:
                    waiting.discard(member)
                else:
                    member.beat()
        return time.perf_counter() - started


def _is_settled(members: Sequence[ConsumerMember], partition_count: int) -> bool:
    has_all = sum(member.partition_count for member in members) == partition_count
    return has_all and len({member.epoch for member in members}) == 1
