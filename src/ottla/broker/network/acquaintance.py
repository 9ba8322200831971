"""What a connection has shown of its client: which topics that knows of, and what it does with them.

It is asked when a topic grows in order: clients that may write to the topic have to learn of the new partitions, and
those that read it may as well. Others are left alone (`broker/growing`).
"""

from __future__ import annotations

MOST_TOPICS = 100
"""That are remembered of one connection. With more, the client is taken to know all of them."""

# What a request shows of its client, as bits.
PREPARES = 0  # every client may ask this, whatever it does later
WRITES = 1
READS = 2
COORDINATES = 4  # it asks the coordinator of its transactions
COMMITS_OFFSETS = 8  # in a transaction
OTHER = 16  # groups, and what administrators do


class Acquaintance:
    __slots__ = ("_knows_all", "topics", "uses")

    def __init__(self) -> None:
        self.topics: set[str] = set()  # by name: that the client asked for, or wrote to
        self.uses = PREPARES
        self._knows_all = False

    def add(self, topic: str) -> None:
        if not self._knows_all:
            self.topics.add(topic)
            if len(self.topics) > MOST_TOPICS:
                self.add_all()

    def add_all(self) -> None:
        self._knows_all = True
        self.topics.clear()

    def is_concerned_with(self, topic: str) -> bool:
        """Whether the client knows the topic and may write to it or read it, as far as this connection shows.

        A transactional producer of librdkafka 2.16 must keep the connection on which it commits offsets: if its
        connections to brokers are all closed it hangs in the next commit of offsets, with Apache Kafka, too. It has
        another connection to the coordinator of its transactions. That one may never have named a topic.
        """
        uses = self.uses
        if uses & COMMITS_OFFSETS and not uses & COORDINATES:
            return False
        is_known = self._knows_all or topic in self.topics
        if uses & COORDINATES:
            return is_known or not self.topics
        return is_known and (uses & (WRITES | READS) != 0 or not uses & OTHER)
