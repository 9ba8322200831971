"""The offsets of groups, taken over to the copies: a group that moves goes on where it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.client import Admin, Offset, ServerError, TopicPartition
from ottla.connect.mirror.progress import TopicProgress
from ottla.connect.mirror.topics import pattern

Topics = Mapping[str, TopicProgress]
"""By the name on the source: those that are there on both sides."""


class MirroredGroups:
    """A group that has members on the target, or is further there, is left alone."""

    def __init__(self, source: Admin, target: Admin, groups: Sequence[str], own_group: str) -> None:
        self._source = source
        self._target = target
        self._patterns = [pattern("groups", text) for text in groups]
        self._own_group = own_group

    @staticmethod
    def check(groups: Sequence[str]) -> None:
        """ValueError where one is no regular expression."""
        for text in groups:
            pattern("groups", text)

    def tell_lag(self, topics: Topics) -> None:
        """Commit how far the mirror itself is, as a group of the source: tools that show lags see it."""
        offsets = {
            TopicPartition(name, index): partition.next_offset
            for name, topic in topics.items()
            for index, partition in topic.partitions.items()
        }
        self._source.alter_group_offsets(self._own_group, offsets)

    def translate(self, topics: Topics) -> None:
        if not self._patterns:
            return
        names = [
            listing.group_id
            for listing in self._source.list_groups()
            if listing.group_id != self._own_group
            and any(chosen.fullmatch(listing.group_id) for chosen in self._patterns)
        ]
        for name in names:
            wanted = self._wanted(name, topics)
            if wanted:
                self._commit(name, wanted)

    def _wanted(self, group: str, topics: Topics) -> dict[TopicPartition, Offset]:
        found: dict[TopicPartition, Offset] = {}
        for place, offset in self._source.list_group_offsets(group).items():
            topic = topics.get(place.topic)
            partition = topic.partitions.get(place.partition) if topic is not None else None
            if topic is not None and partition is not None:
                translated = partition.translate(offset.offset)
                if translated is not None:
                    found[TopicPartition(topic.target, place.partition)] = Offset(translated, metadata=offset.metadata)
        return found

    def _commit(self, group: str, wanted: dict[TopicPartition, Offset]) -> None:
        present = self._target.list_group_offsets(group)
        ahead = {
            place: offset
            for place, offset in wanted.items()
            if place not in present or present[place].offset < offset.offset
        }
        try:
            self._target.alter_group_offsets(group, ahead)
        except ServerError as error:
            if error.name != "NON_EMPTY_GROUP":  # it works there: its offsets are its own
                raise
