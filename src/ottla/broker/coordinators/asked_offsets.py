"""The offsets that a request wants to commit, and their places in its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.broker.loop.slices import Future, TopicPart, parts_by_topic
from ottla.coordinator.group import OffsetToCommit
from ottla.wire.errors import ErrorCode

if TYPE_CHECKING:
    from ottla.broker.dispatch import Context
    from ottla.broker.loop.slices import Steps
    from ottla.broker.topics import Topic
    from ottla.wire.messages.offset_commit import OffsetCommitRequestPartition, OffsetCommitResponsePartition
    from ottla.wire.messages.txn_offset_commit import TxnOffsetCommitRequestPartition, TxnOffsetCommitResponsePartition
    from ottla.wire.schema import Response

    Asked: TypeAlias = OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition
    Answer: TypeAlias = OffsetCommitResponsePartition | TxnOffsetCommitResponsePartition
    Look: TypeAlias = Callable[[Iterable[TopicPart]], "AskedOffsets"]
    Commit: TypeAlias = Callable[["AskedOffsets", Callable[["AskedOffsets"], None]], None]


COMMITTED_AT_ONCE = 300
_make: Any = tuple.__new__  # half the cost of a constructor


class AskedOffsets:
    """What is there is for the group to decide on; the answers for the rest stay as they are."""

    __slots__ = ("_answers", "offsets")

    def __init__(self) -> None:
        self.offsets: list[OffsetToCommit] = []
        self._answers: list[Answer] = []  # those of the offsets

    def add(self, topic: Topic | None, asked: Sequence[Asked], answers: Sequence[Answer]) -> None:
        """`answers`: one for each that is asked, with the error of those that are not there."""
        if topic is None:
            return
        name, topic_id, count = topic.name, topic.topic_id, topic.partition_count
        for partition, answer in zip(asked, answers, strict=True):
            index = partition.partition_index
            if 0 <= index < count:
                offset, epoch = partition.committed_offset, partition.committed_leader_epoch
                wanted = (name, topic_id, index, offset, epoch, partition.committed_metadata)
                self.offsets.append(_make(OffsetToCommit, wanted))
                self._answers.append(answer)

    def answer(self, codes: Iterable[ErrorCode]) -> None:
        """What became of the offsets, in their order."""
        for answer, code in zip(self._answers, codes, strict=True):
            answer.error_code = code

    def answer_all(self, code: ErrorCode) -> None:
        for answer in self._answers:
            answer.error_code = code


def commit_in_parts(
    topics: Sequence[Any], look: Look, commit: Commit, context: Context, response: Response
) -> Steps | None:
    """Commit what a request names, and reply when that is done; of very many offsets some at a time.

    `look` finds the offsets of a part and makes places for their answers; `commit` hands them to the group. A part is
    decided on and written for itself, when the one before is committed. The connection is held until the last one is,
    so that a transaction is not ended in between by whoever commits in it.
    """
    count = len(topics)
    for topic in topics:
        count += len(topic.partitions)
    if count > COMMITTED_AT_ONCE:
        return _commit_parts(topics, look, commit, context, response)
    asked = look([_make(TopicPart, (topic, topic.partitions, False)) for topic in topics])
    if asked.offsets:
        commit(asked, lambda _: context.reply(response))
    else:
        context.reply(response)
    return None


def _commit_parts(topics: Sequence[Any], look: Look, commit: Commit, context: Context, response: Response) -> Steps:
    for part in parts_by_topic(topics, COMMITTED_AT_ONCE):
        asked = look(part)
        if asked.offsets:
            committed: Future[AskedOffsets] = Future()
            commit(asked, committed.set)
            yield from committed.wait()
        yield None
    context.reply(response)
