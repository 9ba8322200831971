"""The data folder that docs/log-files.md shows, and the commands with their output in it."""

import re
from pathlib import Path

from ottla.log.files import DiskFiles
from ottla.log.manager import LogManager
from ottla.log.topic_config import TopicConfig
from ottla.records.build import ControlMarker, build_batch, build_marker
from tests.cli.partitions import TIME, TOPIC_ID, append

PAGE = Path(__file__).parent.parent.parent / "docs" / "log-files.md"
_BLOCK = re.compile(r"```console\n\$ ottla (?P<command>[^\n]+)\n(?P<output>.*?)```", re.DOTALL)


def blocks() -> list[tuple[list[str], str]]:
    """The arguments of each command on the page, and what it is said to print."""
    return [(block["command"].split(), block["output"]) for block in _BLOCK.finditer(PAGE.read_text())]


def write_documented_folder(folder: Path) -> None:
    config = TopicConfig(internal_segment_bytes=1000, index_interval_bytes=300)
    manager = LogManager(DiskFiles(), str(folder))
    manager.open(lambda _topic: config, TIME)
    log = manager.create("orders", 0, config, TIME, TOPIC_ID)
    for number in range(6):
        batch = build_batch(
            [f'{{"order": {3 * number + record}, "state": "paid"}}'.encode() for record in range(3)],
            keys=[f"customer-{record}".encode() for record in range(3)],
            timestamp=TIME + 1000 * number,
        )
        append(log, batch, leader_epoch=number // 4)
    for producer_id, is_commit in ((4000, True), (4001, False)):
        batch = build_batch(
            [b"one", b"two"],
            timestamp=TIME + 6000,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        )
        append(log, batch, leader_epoch=1)
        marker = ControlMarker(is_commit=is_commit, coordinator_epoch=0)
        append(
            log,
            build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=TIME + 7000),
            leader_epoch=1,
        )
    log.advance_high_watermark(log.end_offset)
    manager.close(TIME)
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=4qQx7mVvQX6eXH0bJ3nGZA\n")
