"""All data folders of a broker (`log.dirs`) as one: each has logs, checkpoints and a lock of its own.

A new partition goes to the folder with the fewest. If a crash has left a partition in two folders, it was about to be
moved: the one whose log ends later is kept, and the other is what was left behind. What is left of a deleted topic of
the same name is no copy, wherever it ends, and is put aside.

A folder whose disk fails is not used until the next start, and the others go on. If a folder fails at the start, a
partition that is in no other folder may lie there. So it is not begun anew elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

from ottla.log.checkpoint import TopicPartition
from ottla.log.errors import is_lasting
from ottla.log.files import Files
from ottla.log.log import Log
from ottla.log.loss import Loss
from ottla.log.manager import STRAY_FOLDER, ConfigFor, Failed, LogManager
from ottla.log.recovery import Recovered
from ottla.log.topic_config import TopicConfig
from ottla.wire.uuids import new_uuid

LONGEST_FOLDER_NAME = 255


class LogFolders:
    def __init__(
        self,
        files: Files,
        folders: Sequence[str],
        failed: Failed = lambda _partitions: None,
        make_room: Callable[[], bool] = lambda: False,
    ) -> None:
        """`failed`: is told of logs that take no more writes until the next start. `make_room`: in the first folder."""
        self.files = files
        first, *others = folders
        self.managers = [LogManager(files, first, failed, make_room)]
        self.managers += [LogManager(files, folder, failed) for folder in others]
        self.logs: dict[TopicPartition, Log] = {}
        self.strays: dict[str, TopicPartition] = {}  # folders of other topics that opening has put aside

    @property
    def folder(self) -> str:
        """The first one, in which the broker keeps what is its own."""
        return self.managers[0].folder

    @property
    def sound(self) -> list[LogManager]:
        """Those of the folders that can be used."""
        return [manager for manager in self.managers if manager.failure is None]

    @property
    def recovered(self) -> dict[TopicPartition, Recovered]:
        return {partition: found for manager in self.managers for partition, found in manager.recovered.items()}

    @property
    def unreadable(self) -> dict[str, str]:
        """Checkpoint files that were not understood, and why."""
        if len(self.managers) == 1:
            return self.managers[0].unreadable
        return {
            f"{manager.folder}/{name}": reason
            for manager in self.managers
            for name, reason in manager.unreadable.items()
        }

    @property
    def set_aside(self) -> list[str]:
        """The folders that former starts have put aside, and nobody has removed."""
        return [path for manager in self.managers for path in manager.set_aside]

    @property
    def has_deletions_to_sync(self) -> bool:
        return any(manager.has_deletions_to_sync for manager in self.sound)

    @has_deletions_to_sync.setter
    def has_deletions_to_sync(self, value: bool) -> None:
        for manager in self.managers:
            manager.has_deletions_to_sync = value

    # Opening and closing

    def loss(self, boot_id: str | None, broker_epoch: int | None = None) -> Loss:
        """What may be missing in any of them."""
        return max((manager.loss(boot_id, broker_epoch) for manager in self.sound), default=Loss.NOTHING)

    def note_registration(self, broker_epoch: int) -> None:
        """Have all of them know of it; a folder whose disk fails is done without, as long as there is another."""
        for manager in self.sound:
            try:
                manager.note_registration(broker_epoch)
            except OSError as error:
                if not is_lasting(error) or len(self.sound) == 1:
                    raise
                manager.fail(error)

    def note_boot(self, boot_id: str | None) -> None:
        """From now on the data is as this run of the machine has it: whoever had to know what it may lack knows it."""
        for manager in self.sound:
            manager.note_boot(boot_id)

    def take_folder(self) -> None:
        """Make the folders that are missing, and lock all; OSError when another process has one."""
        for manager in self.sound:
            self._unless_failed(manager, manager.take_folder)

    def _unless_failed(self, manager: LogManager, work: Callable[[], None]) -> None:
        """Do without a folder whose disk fails, as long as there is another."""
        try:
            work()
        except BlockingIOError:
            raise
        except OSError as error:
            if not is_lasting(error) or len(self.sound) == 1:
                raise
            manager.logs.clear()
            manager.fail(error)

    def open(self, config_for: ConfigFor, now_ms: int, topic_ids: Mapping[str, bytes]) -> None:
        """`topic_ids`: of all topics, by name. A log with another id is of an older topic of that name."""
        self.take_folder()
        for manager in self.sound:
            self._unless_failed(manager, partial(manager.open, config_for, now_ms))
        for manager in self.sound:
            for partition, log in list(manager.logs.items()):
                known = self.logs.get(partition)
                if known is None or self._rank(known, partition, topic_ids) < self._rank(log, partition, topic_ids):
                    self.logs[partition] = log
                left_behind = log if self.logs[partition] is not log else known
                if left_behind is None:
                    continue
                if self._rank(left_behind, partition, topic_ids)[0]:
                    self.manager_of(left_behind).delete(*partition, now_ms)
                else:
                    self.strays[self.put_aside(left_behind, partition)] = partition
        if self.has_deletions_to_sync:
            self.sync_deletions()

    def _rank(self, log: Log, partition: TopicPartition, topic_ids: Mapping[str, bytes]) -> tuple[bool, int]:
        """Whether a log is of the topic that there is, and where it ends."""
        topic_id = self.manager_of(log).topic_id(*partition)
        return topic_id in (None, topic_ids.get(partition[0])), log.end_offset

    def put_aside(self, log: Log, partition: TopicPartition) -> str:
        """Have nothing more to do with a log, and keep its folder under another name."""
        if self.logs.get(partition) is log:
            del self.logs[partition]
        manager = self.manager_of(log)
        manager.take_out(*partition)
        suffix = f".{new_uuid().hex()}{STRAY_FOLDER}"
        aside = f"{partition[0]}-{partition[1]}"[: LONGEST_FOLDER_NAME - len(suffix)] + suffix
        manager.with_room(lambda: self.files.rename(log.folder, f"{manager.folder}/{aside}"))
        return aside

    def close(self, now_ms: int) -> None:
        """All of them, also where one cannot be closed in good order."""
        failures: list[Exception] = []
        for manager in self.managers:
            try:
                manager.close(now_ms)
            except Exception as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def abandon(self) -> None:
        for manager in self.managers:
            manager.abandon()

    # Partitions come and go

    def manager_of(self, log: Log) -> LogManager:
        folder = log.folder.rpartition("/")[0]
        return next(manager for manager in self.managers if manager.folder == folder)

    def manager_at(self, path: str) -> LogManager | None:
        """The one of a folder that is named by its full path; None if there is none."""
        from pathlib import Path  # slow to import, and not needed for a start

        return next((each for each in self.managers if str(Path(each.folder).absolute()) == path), None)

    def create(
        self, topic: str, partition: int, config: TopicConfig, now_ms: int, topic_id: bytes | None = None
    ) -> Log:
        """A partition that is not here yet."""
        log = self.make(topic, partition, config, now_ms, topic_id)
        self.adopt({(topic, partition): log})
        return log

    def make(self, topic: str, partition: int, config: TopicConfig, now_ms: int, topic_id: bytes | None = None) -> Log:
        """As one manager makes it, where the fewest partitions are. Those that are made together alternate."""
        if (topic, partition) in self.logs:
            raise ValueError(f"partition {topic}-{partition} is here already")
        managers = self.sound or self.managers
        if len(managers) == 1:
            return managers[0].make(topic, partition, config, now_ms, topic_id)
        fewest = min(len(manager.logs) for manager in managers)
        choice = [manager for manager in managers if len(manager.logs) == fewest]
        return choice[partition % len(choice)].make(topic, partition, config, now_ms, topic_id)

    def take_lacking(self) -> list[TopicPartition]:
        """After the opening, once: the partitions whose logs end before what they knew to be committed."""
        lacking = []
        for manager in self.sound:
            noted, manager.noted_high_watermarks = manager.noted_high_watermarks, {}
            for partition, high_watermark in noted.items():
                log = self.logs.get(partition)
                if log is not None and log.failure is None and log.end_offset < high_watermark:
                    lacking.append(partition)
        return lacking

    def find_or_create(
        self, topic: str, partition: int, config: TopicConfig, now_ms: int, topic_id: bytes | None = None
    ) -> Log:
        """After the opening: what is in no folder has no records yet, unless it lies where nothing can be read."""
        found = self.logs.get((topic, partition))
        if found is not None:
            return found
        failed = next((manager for manager in self.managers if manager.failure is not None), None)
        if failed is None:
            return self.create(topic, partition, config, now_ms, topic_id)
        log = self.logs[topic, partition] = failed.make_failed(topic, partition, config, now_ms)
        return log

    def adopt(self, logs: Mapping[TopicPartition, Log]) -> None:
        """Partitions that were made are here from now on, all at once."""
        for partition, log in logs.items():
            self.manager_of(log).adopt({partition: log})
        self.logs.update(logs)

    def topic_id(self, topic: str, partition: int) -> bytes | None:
        return self.manager_of(self.logs[topic, partition]).topic_id(topic, partition)

    def take_out(self, topic: str, partition: int) -> Log:
        log = self.logs.pop((topic, partition))
        return self.manager_of(log).take_out(topic, partition)

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        log = self.logs.pop((topic, partition))
        self.manager_of(log).delete(topic, partition, now_ms)

    @property
    def stale(self) -> set[TopicPartition]:
        """Partitions that are gone, and that checkpoints may still tell of."""
        return {partition for manager in self.sound for partition in manager.stale}

    def forgetting(self) -> Callable[[], None]:
        """The job of writing the checkpoints without partitions that are gone, for any thread."""
        jobs = [manager.forgetting() for manager in self.sound if manager.stale]

        def run() -> None:
            for job in jobs:
                job()

        return run

    def forgotten(self, partitions: set[TopicPartition]) -> None:
        for manager in self.managers:
            manager.stale -= partitions

    def sync_deletions(self) -> None:
        """Touches no state: safe on any thread."""
        for manager in self.sound:
            manager.sync_deletions()

    def checkpoint_in_slices(self, name: str) -> Generator[Callable[[], None] | None, None, None]:
        for manager in self.sound:
            yield from manager.checkpoint_in_slices(name)
