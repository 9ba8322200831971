"""The housekeeping of a broker's data folders, as its settings ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.events import Events
from ottla.broker.loop.background import Background
from ottla.log.housekeeping import FoldersHousekeeping, Housekeeping

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.log.manager import LogManager

events = Events("ottla.broker")


class BrokerHousekeeping:
    def __init__(self, broker: Broker) -> None:
        """Begins at once."""
        self._settings = broker.settings
        self.parts = [_of_folder(broker, manager) for manager in broker.logs.managers]
        self._background = Background(broker.loop, FoldersHousekeeping(self.parts))
        broker.settings.watch(self._settings_changed)

    def _settings_changed(self) -> None:
        config = self._settings.config
        for part in self.parts:
            part.compaction_interval_ms = config.log_cleaner_backoff_ms
            part.map_bytes = config.log_cleaner_dedupe_buffer_size
            part.producer_expiration_ms = config.producer_id_expiration_ms

    def stop(self) -> None:
        self._background.stop()


def _of_folder(broker: Broker, manager: LogManager) -> Housekeeping:
    config = broker.settings.config
    return Housekeeping(
        manager,
        broker.clock_ms,
        steady_ms=broker.steady_ms,
        aging_ms=broker.aging_ms,
        retention_interval_ms=config.log_retention_check_interval_ms,
        compaction_interval_ms=config.log_cleaner_backoff_ms,
        checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
        high_watermark_interval_ms=config.replica_high_watermark_checkpoint_interval_ms,
        has_followers=lambda: broker.replication.has_replicas,
        producer_interval_ms=config.producer_id_expiration_check_interval_ms,
        producer_expiration_ms=config.producer_id_expiration_ms,
        compacts=config.log_cleaner_enable,
        map_bytes=config.log_cleaner_dedupe_buffer_size,
        report_uncleanable=lambda partition, reason: events.warning(
            "a log is not compacted any more", partition="-".join(map(str, partition)), reason=reason
        ),
    )
