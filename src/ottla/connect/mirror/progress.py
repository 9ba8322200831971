"""How far a mirror is: the next offset of each partition, and where what was copied lies in the other cluster.

No I/O. It is the position of a task (ottla.connect), so it is committed with the records that it tells of.

The offsets of a copy are others than those of the original: ends of transactions take offsets, too. A run says that so
many records from one offset on lie from another offset on. The latest runs are kept, and of the older ones those that
lie twice as far back each time: for a group far behind, the offset found may be some records too early, never too late.
"""

from __future__ import annotations

from typing import Any, NamedTuple

LATEST_RUNS = 4
MOST_RUNS = 24
MOST_RUNS_IN_ALL = 20_000
"""Of all partitions of a task: it is one record, and a broker takes a megabyte."""


class Run(NamedTuple):
    source_offset: int
    target_offset: int
    length: int
    """So many records follow one another on both sides."""


class PartitionProgress:
    def __init__(self, next_offset: int, runs: list[Run] | None = None, leader_epoch: int = -1) -> None:
        self.next_offset = next_offset
        self.runs = runs or []
        self.leader_epoch = leader_epoch
        """In which the record before was written, so that the source can look whether it is still there; -1: not known.
        """

    def copied(self, run: Run) -> None:
        """Batches are copied in their order."""
        last = self.runs[-1] if self.runs else None
        if last is not None and _continues(last, run):
            self.runs[-1] = last._replace(length=last.length + run.length)
            return
        self.runs.append(run)
        if len(self.runs) > MOST_RUNS:
            self.runs = thinned(self.runs)

    def translate(self, offset: int) -> int | None:
        """Where a group goes on in the copy that has read the original up to `offset`; None if that is not known."""
        if offset > self.next_offset:
            return None  # the records before it are not copied yet
        found = None
        for run in self.runs:
            if run.source_offset > offset:
                break
            found = run.target_offset + min(offset - run.source_offset, run.length)
        return found


def _continues(last: Run, run: Run) -> bool:
    return (run.source_offset, run.target_offset) == (
        last.source_offset + last.length,
        last.target_offset + last.length,
    )


def thinned(runs: list[Run]) -> list[Run]:
    """The latest, and of the others those that lie twice as far back each time; the first stays."""
    end = runs[-1].source_offset
    kept = runs[-LATEST_RUNS:]
    distance = end - kept[0].source_offset
    for run in reversed(runs[:-LATEST_RUNS]):
        if end - run.source_offset >= 2 * distance:
            kept.insert(0, run)
            distance = end - run.source_offset
    return kept if kept[0] is runs[0] else [runs[0], *kept]


def shortened(runs: list[Run], most: int) -> list[Run]:
    """The first and the latest, where not all can be kept."""
    return runs if len(runs) <= most else [runs[0], *runs[1 - most :]]


class TopicProgress:
    """`source_id`, `target_id`: of the topics, as texts, so that one created again is known from the one before."""

    def __init__(self, target: str, source_id: str, target_id: str) -> None:
        self.target = target
        self.source_id = source_id
        self.target_id = target_id
        self.partitions: dict[int, PartitionProgress] = {}


class Progress:
    """Of one task: all topics that it has partitions of."""

    def __init__(self, cluster_id: str) -> None:
        self.cluster_id = cluster_id
        """Of the source."""
        self.topics: dict[str, TopicProgress] = {}

    @classmethod
    def read(cls, document: Any) -> Progress:
        progress = cls(document["cluster"])
        for name, topic in document["topics"].items():
            read = progress.topics[name] = TopicProgress(topic["target"], topic["source_id"], topic["target_id"])
            leader_epochs = topic.get("leader_epochs", {})
            for index, (next_offset, *runs) in topic["partitions"].items():
                read.partitions[int(index)] = PartitionProgress(
                    next_offset, [Run(*run) for run in runs], leader_epochs.get(index, -1)
                )
        return progress

    def document(self) -> dict[str, Any]:
        """What JSON can hold; it does not change with this."""
        count = sum(len(topic.partitions) for topic in self.topics.values())
        most = max(MOST_RUNS_IN_ALL // max(count, 1), 2)
        return {
            "cluster": self.cluster_id,
            "topics": {
                name: {
                    "target": topic.target,
                    "source_id": topic.source_id,
                    "target_id": topic.target_id,
                    "partitions": {
                        str(index): [partition.next_offset, *(list(run) for run in shortened(partition.runs, most))]
                        for index, partition in topic.partitions.items()
                    },
                    "leader_epochs": {
                        str(index): partition.leader_epoch
                        for index, partition in topic.partitions.items()
                        if partition.leader_epoch >= 0
                    },
                }
                for name, topic in self.topics.items()
            },
        }
