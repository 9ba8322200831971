"""The offsets that a request wants to commit, and their places in its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.coordinator.offset_commit import OffsetToCommit
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.slices import Steps
    from ottla.broker.topics import Topic
    from ottla.wire.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitResponsePartition
    from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition

    Asked: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
    Answer: TypeAlias = OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition
    Commit: TypeAlias = Callable[["AskedOffsets", Callable[["AskedOffsets"], None]], None]


COMMITTED_AT_ONCE = 500


class AskedOffsets:
    """What is there is for the group to decide on; the answers for the rest stay as they are."""

    def __init__(self) -> None:
        self.offsets: list[OffsetToCommit] = []
        self._answers: list[Answer] = []  # those of the offsets

    def commit_in_parts(self, commit: Commit, done: Callable[[], None]) -> Steps | None:
        """Commit them, of very many some at a time; `done` is called when each part is answered.

        A part is decided on and written for itself: what a transaction admits may have ended before the next.
        """
        parts = self._parts()
        unanswered = len(parts)

        def answered(_part: AskedOffsets) -> None:
            nonlocal unanswered
            unanswered -= 1
            if not unanswered:
                done()

        def steps() -> Steps:
            for part in parts:
                yield None
                commit(part, answered)

        if unanswered > 1:
            return steps()
        commit(self, answered)
        return None

    def _parts(self) -> list[AskedOffsets]:
        if len(self.offsets) <= COMMITTED_AT_ONCE:
            return [self]
        parts = []
        for start in range(0, len(self.offsets), COMMITTED_AT_ONCE):
            parts.append(part := AskedOffsets())
            part.offsets = self.offsets[start : start + COMMITTED_AT_ONCE]
            part._answers = self._answers[start : start + COMMITTED_AT_ONCE]
        return parts

    def add(self, topic: Topic | None, asked: Sequence[Asked], answers: Sequence[Answer]) -> None:
        """`answers`: one for each that is asked, with the error of those that are not there."""
        if topic is None:
            return
        name, topic_id, count = topic.name, topic.topic_id, topic.partition_count
        for partition, answer in zip(asked, answers, strict=True):
            index = partition.partition_index
            if 0 <= index < count:
                offset, epoch = partition.committed_offset, partition.committed_leader_epoch
                self.offsets.append(OffsetToCommit(name, topic_id, index, offset, epoch, partition.committed_metadata))
                self._answers.append(answer)

    def answer(self, codes: Iterable[ErrorCode]) -> None:
        """What became of the offsets, in their order."""
        for answer, code in zip(self._answers, codes, strict=True):
            answer.error_code = code

    def answer_all(self, code: ErrorCode) -> None:
        for answer in self._answers:
            answer.error_code = code
