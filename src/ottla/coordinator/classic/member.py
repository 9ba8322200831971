"""A member of a classic group: what it told of itself, and the answers it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from ottla.coordinator.group import Client
from ottla.coordinator.operation import Reply
from ottla.coordinator.told import told_subscription
from ottla.wire.errors import ProtocolError
from ottla.wire.messages.offset_and_group_records import MemberMetadata
from ottla.wire.texts import size_bytes

Protocols: TypeAlias = Sequence[tuple[str, bytes]]
"""What a member can work with, the preferred one first: the name of a protocol, and what it tells the leader in it."""


class ClassicMember:
    __slots__ = (
        "_topics",
        "assignment",
        "client",
        "instance_id",
        "is_new",
        "join_reply",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_reply",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client: Client,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client = client
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.offer(protocols)
        self.assignment = assignment
        self.join_reply: Reply | None = None
        self.sync_reply: Reply | None = None
        self.is_new = False  # it has not been told its id and generation yet, so it cannot give signs of life

    def offer(self, protocols: Protocols) -> None:
        """Be able to work with these, and no others."""
        self.protocols = list(protocols)
        self._topics: dict[str, frozenset[str] | None] = {}  # by protocol, as far as somebody has asked

    def copy(self) -> ClassicMember:
        copied = ClassicMember(
            self.member_id,
            self.instance_id,
            self.client,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            self.assignment,
        )
        copied.go_on_as(self)
        return copied

    def go_on_as(self, known: ClassicMember) -> None:
        """Take over what no record tells of a member. What it tells in the protocol of the record is told there."""
        protocol, told = self.protocols[0] if self.protocols else ("", b"")
        if known.metadata(protocol) == told:
            self.protocols, self._topics = known.protocols, known._topics
        self.join_reply = known.join_reply
        self.sync_reply = known.sync_reply
        self.is_new = known.is_new

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def awaits_rebalance(self) -> bool:
        """Whether it waits for an answer, and so lives without heartbeats."""
        return self.join_reply is not None or self.sync_reply is not None

    @property
    def names_bytes(self) -> int:
        """What its names take in a record."""
        return size_bytes(f"{self.member_id}{self.instance_id or ''}{self.client.client_id}{self.client.client_host}")

    def metadata(self, protocol: str) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def topics(self, protocol: str) -> frozenset[str] | None:
        """What it reads, as it tells in a protocol of consumers; None if that is not understood."""
        if protocol not in self._topics:
            try:
                self._topics[protocol] = frozenset(told_subscription(self.metadata(protocol)).topics)
            except ProtocolError:
                self._topics[protocol] = None
        return self._topics[protocol]

    def record(self, protocol: str) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client.client_id,
            client_host=self.client.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol),
            assignment=self.assignment,
        )


def member_of_record(record: MemberMetadata, protocol: str) -> ClassicMember:
    timeout_ms = record.rebalance_timeout
    return ClassicMember(
        record.member_id,
        record.group_instance_id,
        Client(record.client_id, record.client_host),
        record.session_timeout if timeout_ms == -1 else timeout_ms,
        record.session_timeout,
        [(protocol, record.subscription)],
        record.assignment,
    )
