"""What a partition asks of the disk: whether acknowledgements wait for it, how far it is, and when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.log.errors import LogError
from ottla.log.topic_config import TopicConfig
from ottla.replica.machine import UNLIMITED

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.replica.shell import Shell

SYNC_AGAIN_SECONDS = 1.0  # where one could not be made


class OnDisk:
    """The durability of one partition. The machine decides by it what is written and committed."""

    __slots__ = ("_asked_offset", "_is_refused", "_shell", "is_asked")

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.is_asked = False  # whether the broker or the topic asks for the disk
        self._asked_offset = -1  # up to where a sync is on its way
        self._is_refused = False  # whether the last one could not be made

    def configure(self, config: TopicConfig) -> int:
        """How many records may be acknowledged before they are on the disk, as the broker and the topic say."""
        unsynced_records = UNLIMITED
        if self._shell.waits_for_disk or not config.flush_ms:
            unsynced_records = 0
        elif config.has_flush_limits:
            unsynced_records = min(config.flush_messages - 1, UNLIMITED)
        self.is_asked = config.has_flush_limits or not unsynced_records
        return unsynced_records

    def synced(self, failure: LogError | None) -> None:
        """The log was brought to the disk, or could not be."""
        self._asked_offset = -1
        self._is_refused = failure is not None

    def ask(self, partition: Partition) -> None:
        """Ask for a sync if more is unsynced than may be, or have one made within `flush.ms`."""
        machine, log = partition.machine, partition.log
        unsynced = machine.end_offset - machine.disk_offset
        if log.failure is not None:
            partition.acknowledgements.fail(log.refusal, machine.committed)  # it is never synced again
        elif unsynced > machine.unsynced_records:
            if self._asked_offset >= machine.end_offset:
                return
            if partition.acknowledgements or not self._is_refused:
                self._asked_offset = machine.end_offset
                self._shell.sync(partition)
            else:  # it could not begin, and nobody but readers waits for it
                self._shell.sync_within(partition, SYNC_AGAIN_SECONDS)
        elif unsynced and log.config.has_flush_time:
            self._shell.sync_within(partition, log.config.flush_ms / 1000)
