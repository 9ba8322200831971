"""What a sink remembers of itself in the cluster, so that a batch is written once whatever becomes of the driver.

The memory is an offset of a group that has the name of the transactional id: the number of the next batch, with the
generation, the query and its latest runs beside it, and what tells the last batch from another one of its number. It is
committed in the transaction that holds the batch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.client import Admin, GroupOffsets, Membership, Offset, TopicPartition

MOST_RUNS = 16


class SinkRefused(Exception):
    """The batch is not written: it may not belong behind what is there. The sentence says what to do."""


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one run of a query: a run begins when the query starts, the query with its checkpoint."""

    generation: int
    query_id: str
    run_id: str
    number: int
    rows: int | None = None
    plan: str | None = None
    """What Spark has planned for it, where that can be read: see `plan_of`."""


@dataclass(frozen=True)
class Memory:
    place: TopicPartition
    generation: int
    query_id: str
    run_ids: tuple[str, ...]
    """The latest runs that have written, the last of them last."""
    next_number: int
    rows: int | None = None
    plan: str | None = None
    """Of the batch before `next_number`."""

    def offset(self) -> Offset:
        metadata = {"generation": self.generation, "query": self.query_id, "runs": self.run_ids}
        metadata |= {"rows": self.rows, "plan": self.plan}
        return Offset(self.next_number, json.dumps(metadata, separators=(",", ":")))

    def is_of_older_copy(self, batch: Batch) -> bool:
        """Whether a run that has not written yet begins with a batch that it has not from the last run.

        A run goes on with the last batch, if that may not be complete. One with the number of the last batch and
        another plan was planned again, by a checkpoint that did not know of it. Where the plan is not known, the rows
        are counted.
        """
        if batch.run_id in self.run_ids or batch.number >= self.next_number:
            return False
        if batch.number < self.next_number - 1:
            return True
        if None not in (batch.plan, self.plan):
            return batch.plan != self.plan
        return None not in (batch.rows, self.rows) and batch.rows != self.rows


def read_memory(admin: Admin, transactional_id: str, *, must_be_stable: bool = True) -> Memory | None:
    """None where nothing was ever written under the id, or where the cluster has forgotten it.

    Stable: a transaction that may change it is waited for.
    """
    found = admin.list_group_offsets(transactional_id, must_be_stable=must_be_stable)
    memories = [_parse(place, offset) for place, offset in found.items()]
    return max(memories, key=lambda memory: (memory.generation, memory.next_number), default=None)


def _parse(place: TopicPartition, offset: Offset) -> Memory:
    try:
        found = json.loads(offset.metadata)
        runs, rows, plan = tuple(found["runs"]), found.get("rows"), found.get("plan")
        return Memory(place, found["generation"], found["query"], runs, offset.offset, rows, plan)
    except (ValueError, KeyError, TypeError):
        raise SinkRefused(
            f"the group of this name is used by others: it has an offset for {place} that no sink has written. "
            "Choose another kafka.transactional.id"
        ) from None


def is_written(memory: Memory | None, batch: Batch, transactional_id: str, continue_from: int | None = None) -> bool:
    """Whether the batch is in the topic already. SinkRefused where writing it could be wrong."""
    if memory is None:
        if batch.number and batch.number != continue_from:
            raise SinkRefused(
                f"the cluster does not remember what {transactional_id} has written before batch {batch.number}: its "
                "group was deleted or has expired (offsets.retention.minutes), or the topic was deleted. See whether "
                f"batch {batch.number} is in the topic; if it is not, set option continueFromBatch to {batch.number}"
            )
        return False
    if batch.generation != memory.generation:
        if batch.generation < memory.generation:
            raise SinkRefused(
                f"{transactional_id} is in generation {memory.generation}, and this query has generation "
                f"{batch.generation}: another query has taken over"
            )
        return False
    if batch.query_id != memory.query_id:
        raise SinkRefused(
            f"{transactional_id} was written by another query ({memory.query_id}, up to batch "
            f"{memory.next_number - 1}; this one is {batch.query_id}). If this query has lost its checkpoint, and is "
            f"to send everything again, set option generation to {memory.generation + 1}; if it is another query, "
            "give it a kafka.transactional.id of its own"
        )
    if batch.run_id in memory.run_ids[:-1]:
        raise SinkRefused(
            f"{transactional_id} has been taken over by a later run of the same query: this one is fenced"
        )
    if memory.is_of_older_copy(batch) and continue_from != batch.number + 1:
        raise SinkRefused(
            f"this query begins with batch {batch.number}, and {transactional_id} was written up to batch "
            f"{memory.next_number - 1} from the same checkpoint: it is an older copy, and its batches may hold other "
            f"rows. If everything from batch {batch.number} on is to be sent again, set option generation to "
            f"{memory.generation + 1}; if all that batch {batch.number} has is in the topic, set option "
            f"continueFromBatch to {batch.number + 1}"
        )
    return batch.number < memory.next_number


def remember(memory: Memory | None, batch: Batch, place: TopicPartition, transactional_id: str) -> GroupOffsets:
    """What to commit with the batch. A later generation overwrites the memory of an earlier one."""
    run_ids: tuple[str, ...] = ()
    if memory is not None:
        place = memory.place
        if (memory.generation, memory.query_id) == (batch.generation, batch.query_id):
            run_ids = memory.run_ids
    if batch.run_id not in run_ids:
        run_ids = (*run_ids, batch.run_id)[-MOST_RUNS:]
    written = Memory(place, batch.generation, batch.query_id, run_ids, batch.number + 1, batch.rows, batch.plan)
    offsets: Mapping[TopicPartition, Offset] = {place: written.offset()}
    return GroupOffsets(Membership(transactional_id), offsets)
