"""A pipeline: topics of changes, and the tables that follow them. Written as TOML, or as Python that has `pipeline`."""

from __future__ import annotations

import runpy
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client import Isolation
from ottla.pipelines.tables import settings
from ottla.pipelines.tables.columns import DoesNotFit, type_named
from ottla.pipelines.tables.dead_letters import DeadLetters
from ottla.pipelines.tables.layout import DEFAULT_BUCKETS
from ottla.pipelines.tables.rules import Rules, RulesRefused, Transform, names
from ottla.pipelines.tables.settings import SettingRefused, check_settings

if TYPE_CHECKING:
    from pyspark.sql import Column

# Of a batch, which goes through the driver: what is in a topic when a pipeline begins may be more than that holds.
DEFAULT_BATCH_OFFSETS = 500_000
DEFAULT_RETENTION_HOURS = 24
DEFAULT_TOMBSTONE_HOURS = 7 * 24
FORMATS = ("ottla", "kafka")
SCHEMES = ("file", "hdfs", "viewfs", "s3", "s3a", "az", "azure", "adl", "abfs", "abfss", "gs")


class PipelineRefused(ValueError):
    """A pipeline that cannot be run as it is written; the text says why."""


@dataclass(frozen=True)
class Table:
    """One table: the topic `source`, the path `target`, and the rules of `apply_changes`.

    `check_against` is what `verify` compares with: a SQLite file and the table in it, as in "shop.db:customers", or
    "mysql://USER:PASSWORD@HOST:PORT/DATABASE.TABLE".
    `transform`, in Python, is a function on the stream of messages before they are applied.
    """

    source: str
    target: str
    keys: tuple[str, ...]
    sequence_by: str = "position"
    apply_as_deletes: str | Column | None = None
    column_list: tuple[str, ...] | None = None
    except_column_list: tuple[str, ...] = ()
    stored_as_scd_type: int = 1
    track_history_column_list: tuple[str, ...] | None = None
    track_history_except_column_list: tuple[str, ...] | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    source_table: str | None = None
    on_error: str = "dead_letters"
    dead_letter_topic: str | None = None
    buckets: int = DEFAULT_BUCKETS
    check_against: str | None = None
    transform: Transform | None = None

    @property
    def name(self) -> str:
        return self.target.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class Pipeline:
    """`format` is the Spark source to read with: "ottla", or "kafka" for Spark's own. `engine` keeps the tables:
    "deltalake" in the driver, for one machine, or "delta-spark" on the executors, which needs its jars."""

    bootstrap: str
    tables: tuple[Table, ...]
    name: str = "pipeline"
    format: str = "ottla"
    engine: str = "deltalake"
    options: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, str] | None = None
    trigger_seconds: float = 1.0
    max_offsets_per_trigger: int = DEFAULT_BATCH_OFFSETS
    fold_minutes: float = 10.0
    fold_idle_seconds: float = 30.0
    clean_minutes: float = 60.0
    retention_hours: int = DEFAULT_RETENTION_HOURS
    tombstone_hours: float = DEFAULT_TOMBSTONE_HOURS
    start_seconds: float = 30.0
    group: str | None = None

    def __post_init__(self) -> None:
        if not self.tables:
            raise PipelineRefused("the pipeline has no tables")
        if self.format not in FORMATS:
            raise PipelineRefused(f"format is one of {', '.join(FORMATS)}, not {self.format!r}")
        targets = [table.target for table in self.tables]
        for target in targets:
            if targets.count(target) > 1:
                raise PipelineRefused(f"two tables have the target {target!r}")
        for table in self.tables:
            self.rules(table)
            scheme, mark, _ = table.target.partition("://")
            if mark and self.engine == "deltalake" and scheme not in SCHEMES:
                raise PipelineRefused(
                    f"table {table.name}: engine deltalake has paths of {', '.join(SCHEMES)}, not of {scheme!r}"
                )

    def rules(self, table: Table) -> Rules:
        topic = table.dead_letter_topic or f"{table.source}.dead-letters"
        try:
            return Rules(
                keys=table.keys,
                sequence_by=table.sequence_by,
                apply_as_deletes=table.apply_as_deletes,
                column_list=table.column_list,
                except_column_list=table.except_column_list,
                stored_as_scd_type=table.stored_as_scd_type,
                track_history_column_list=table.track_history_column_list,
                track_history_except_column_list=table.track_history_except_column_list,
                columns={name: type_named(kind) for name, kind in table.columns.items()},
                source_table=table.source_table,
                buckets=table.buckets,
                engine=self.engine,
                on_error=table.on_error,
                dead_letters=DeadLetters(self.bootstrap, topic),
                storage_options=self.storage_options,
            )
        except (RulesRefused, DoesNotFit) as error:
            raise PipelineRefused(f"table {table.name}: {error}") from error

    def source_options(self) -> dict[str, str]:
        """For the source of either format. Spark's own would read what was aborted, if it were not told."""
        given = {"kafka.bootstrap.servers": self.bootstrap, "kafka.isolation.level": "read_committed"}
        return given | dict(self.options)

    def isolation(self) -> Isolation:
        """That of the source: where a partition ends depends on it."""
        given = {name.lower(): value for name, value in self.source_options().items()}
        is_committed = given["kafka.isolation.level"].lower() == "read_committed"
        return Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED

    def table(self, name: str) -> Table:
        for table in self.tables:
            if table.name == name:
                return table
        raise PipelineRefused(f"no table {name!r}; there are {', '.join(table.name for table in self.tables)}")


def load_pipeline(file: Path) -> Pipeline:
    """Read a pipeline. Targets without a scheme or a leading slash are beside the file."""
    try:
        if file.suffix == ".py":
            pipeline = _from_python(file)
        else:
            pipeline = _from_toml(file)
    except (tomllib.TOMLDecodeError, SettingRefused, PipelineRefused) as error:
        raise PipelineRefused(f"{file}: {error}") from error
    except UnicodeDecodeError as error:
        raise PipelineRefused(f"{file}: it is no text: {error.reason}") from error
    folder = file.resolve().parent
    tables = tuple(
        replace(table, target=_beside(folder, table.target), check_against=_beside(folder, table.check_against))
        for table in pipeline.tables
    )
    return replace(pipeline, tables=tables, name=pipeline.name if pipeline.name != "pipeline" else file.stem)


def _from_python(file: Path) -> Pipeline:
    try:
        found = runpy.run_path(str(file)).get("pipeline")
    except OSError:
        raise
    except Exception as error:
        raise PipelineRefused(f"{_place_in(file, error)}{type(error).__name__}: {error}") from error
    if not isinstance(found, Pipeline):
        raise PipelineRefused("there is no `pipeline = Pipeline(...)` in it")
    return found


def _place_in(file: Path, error: Exception) -> str:
    """The line of the file that an error comes from."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(file)]
    return f"line {lines[-1]}: " if lines else ""


def _beside(folder: Path, target: str | None) -> Any:
    if target is None or "://" in target or target.startswith("/"):
        return target
    return str(folder / target)


def _from_toml(file: Path) -> Pipeline:
    with file.open("rb") as opened:
        given = tomllib.load(opened)
    tables = given.pop("tables", None)
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise PipelineRefused("there is no [[tables]] in it")
    check_settings(given, settings.PIPELINE, "the pipeline")
    if "bootstrap" not in given:
        raise PipelineRefused('bootstrap is missing, as in bootstrap = "localhost:9092"')
    return Pipeline(tables=tuple(_table(table) for table in tables), **given)


_LISTS = ("keys", "column_list", "track_history_column_list", "track_history_except_column_list", "except_column_list")


def _table(given: dict[str, Any]) -> Table:
    check_settings(given, settings.TABLE, "a table")
    for name in ("source", "target", "keys"):
        if name not in given:
            raise PipelineRefused(f"{name} is missing in a table")
    return Table(**given | {name: names(given[name]) for name in _LISTS if name in given})
