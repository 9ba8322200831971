"""One commit of offsets, from the first attempt to the last. Without I/O.

Each row of the answer is judged by its code. A member must not commit what another member owns by now. So an offset is
sent again only while the consumer still has the position that it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from ottla.client.consumer.partition_position import PartitionPosition
from ottla.client.errors import ClientError, CommitFailed, ServerError
from ottla.client.group.offsets import Membership, Offset, TopicPartition
from ottla.wire.errors import ErrorCode


class CommitVerdict(Enum):
    DONE = auto()
    AGAIN = auto()
    STALE = auto()
    """Of another generation than the present one: again if this member has joined it, else the partitions are lost."""
    LOST = auto()
    REFUSED = auto()


_VERDICTS = {
    ErrorCode.NONE: CommitVerdict.DONE,
    # In the middle of a rebalance nothing is committed: a moment later it is, by the new generation.
    ErrorCode.REBALANCE_IN_PROGRESS: CommitVerdict.AGAIN,
    ErrorCode.ILLEGAL_GENERATION: CommitVerdict.STALE,
    ErrorCode.STALE_MEMBER_EPOCH: CommitVerdict.STALE,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitVerdict.LOST,
    ErrorCode.FENCED_INSTANCE_ID: CommitVerdict.LOST,
    # The topic was deleted: it does not come back while somebody waits.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: CommitVerdict.REFUSED,
    ErrorCode.UNKNOWN_TOPIC_ID: CommitVerdict.REFUSED,
}


def judge(code: int) -> CommitVerdict:
    try:
        known = ErrorCode(code)
    except ValueError:
        return CommitVerdict.REFUSED
    return _VERDICTS.get(known, CommitVerdict.AGAIN if known.retriable else CommitVerdict.REFUSED)


class Commit:
    def __init__(
        self, group_id: str, offsets: Mapping[TopicPartition, Offset],
        positions: Mapping[TopicPartition, PartitionPosition],
    ) -> None:  # fmt: skip
        self._group_id = group_id
        self._pending = dict(offsets)
        self._places = {one: positions.get(one) for one in offsets}
        self.error: ClientError | None = None
        """Of what will not be committed: that partitions are lost comes before all else."""
        self.trouble: ClientError | None = None
        """Why the last attempt has to be made again."""

    def to_send(self, positions: Mapping[TopicPartition, PartitionPosition]) -> dict[TopicPartition, Offset]:
        """What is not committed yet. What was given away meanwhile is another's to commit."""
        for one in list(self._pending):
            if positions.get(one) is not self._places[one]:
                self._lose(one)
        return dict(self._pending)

    def answered(
        self, codes: Mapping[TopicPartition, int], sent_as: Membership, present: Membership, *, is_rejoining: bool
    ) -> None:
        self.trouble = None
        for one in list(self._pending):
            code = codes.get(one, ErrorCode.UNKNOWN_SERVER_ERROR)
            verdict = judge(code)
            if verdict is CommitVerdict.STALE:
                # A classic member that sits still in its generation has missed one; one of the new protocol learns its
                # epoch with the next heartbeat.
                has_moved = sent_as != present or is_rejoining or code == ErrorCode.STALE_MEMBER_EPOCH
                verdict = (
                    CommitVerdict.AGAIN if has_moved and sent_as.member_id == present.member_id else CommitVerdict.LOST
                )
            error = ServerError(code, topic=one.topic, partition=one.partition)
            if verdict is CommitVerdict.DONE:
                self._finish(one)
            elif verdict is CommitVerdict.AGAIN:
                self.trouble = error
            elif verdict is CommitVerdict.LOST:
                self._lose(one)
            else:
                del self._pending[one]
                self.error = self.error or error

    def _finish(self, one: TopicPartition) -> None:
        offset = self._pending.pop(one)
        place = self._places[one]
        if place is not None:
            place.committed = offset.offset

    def _lose(self, one: TopicPartition) -> None:
        del self._pending[one]
        if not isinstance(self.error, CommitFailed):
            self.error = CommitFailed(
                f"group {self._group_id} has given the partitions to another member, for this one did not poll in time "
                "or was cut off: what was read since the last commit will be read again",
                topic=one.topic,
                partition=one.partition,
            )
