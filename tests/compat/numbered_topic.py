"""A topic for groups to read."""

from __future__ import annotations

from tests.compat.client import Record
from tests.compat.confluent_client import ConfluentClient
from tests.compat.samples import FIRST_MS

PARTITIONS = 4
ALL = -1


class NumberedTopic:
    """Takes numbered values, one partition after the other, and knows them."""

    def __init__(self, writer: ConfluentClient, name: str, partition_count: int = PARTITIONS) -> None:
        self._writer = writer
        self.name = name
        self.partition_count = partition_count
        self.values: list[str] = []
        writer.create_topic(name, partition_count, {})

    def write(self, count: int) -> list[str]:
        values = [f"{self.name} {number}" for number in range(len(self.values), len(self.values) + count)]
        for partition in range(self.partition_count):
            records = [Record(None, value.encode(), FIRST_MS) for value in values[partition :: self.partition_count]]
            self._writer.write(self.name, partition, records, codec="none", acks=ALL)
        self.values += values
        return values

    def expand(self, partition_count: int) -> None:
        self._writer.add_partitions(self.name, partition_count)
        self.partition_count = partition_count
