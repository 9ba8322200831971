"""docs/topic-configuration.md says what the code does."""

from pathlib import Path

import pytest

from ottla.log.topic_config import TOPIC_SETTINGS
from tests.config.configuration_page import PAGE, TABLE, table

SOURCES = Path(__file__).parents[2] / "src" / "ottla"
DECLARING = {"topic_config.py", "topic_defaults.py"}

# Settings that code reads by what follows from them.
READ_AS = {
    "cleanup.policy": ("is_compacted", "is_deleted"),
    "compression.type": ("target_codec",),
    "compression.gzip.level": ("target_level",),
    "compression.lz4.level": ("target_level",),
    "compression.zstd.level": ("target_level",),
    "message.timestamp.type": ("is_log_append_time",),
    "preallocate": ("preallocated_bytes",),
    "segment.jitter.ms": ("draw_segment_jitter_ms",),
    "segment.ms": ("max_segment_ms",),
}


def test_the_table_is_that_of_the_code() -> None:
    found = TABLE.search(PAGE.read_text(encoding="utf-8"))
    assert found is not None
    assert found[0] == table(), "run `python -m tests.config.configuration_page`"


@pytest.mark.parametrize("name", [name for name, setting in TOPIC_SETTINGS.items() if not setting.is_internal])
def test_a_setting_acts_where_code_reads_it(name: str) -> None:
    definition = TOPIC_SETTINGS[name]
    attributes = (definition.attribute, *READ_AS.get(name, ()))
    code = [path.read_text() for path in SOURCES.rglob("*.py") if path.name not in DECLARING]
    is_read = any(f"config.{attribute}" in text for text in code for attribute in attributes)
    is_read |= any(f'"{name}"' in path.read_text() for path in (SOURCES / "controller").glob("*.py"))
    assert is_read != definition.is_kept_only, f"{name}: is_kept_only says otherwise than the code"
