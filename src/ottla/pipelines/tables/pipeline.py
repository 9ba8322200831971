"""A pipeline: topics of changes, and the tables that follow them. Written as TOML, or as Python that has `pipeline`."""

from __future__ import annotations

import posixpath
import runpy
import tomllib
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ottla.client import Isolation
from ottla.pipelines.byte_limit import DEFAULT_BATCH_BYTES
from ottla.pipelines.options import OptionError
from ottla.pipelines.source_options import BATCH_NAMES, STREAM_NAMES, source_options
from ottla.pipelines.tables import settings
from ottla.pipelines.tables.columns import DoesNotFit, type_named
from ottla.pipelines.tables.dead_letters import DeadLetters
from ottla.pipelines.tables.layout import DEFAULT_BUCKETS, changes_path
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


# The topic, where to begin and the columns are what a table has of itself: other values would lose changes.
_OWN_OPTIONS = {
    name.lower()
    for name in (*BATCH_NAMES, "kafka.bootstrap.servers")
    if name in ("subscribe", "subscribePattern", "assign", "columns", "kafka.bootstrap.servers")
    or name.startswith(("starting", "ending"))
}


class PipelineRefused(ValueError):
    """A pipeline that cannot be run as it is written; the text says why."""


_LISTS = ("keys", "column_list", "track_history_column_list", "track_history_except_column_list", "except_column_list")


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

    def __post_init__(self) -> None:
        """A list, or one name alone, is as good as a tuple."""
        for name in _LISTS:
            object.__setattr__(self, name, names(getattr(self, name)))

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
    max_bytes_per_trigger: int = DEFAULT_BATCH_BYTES
    fold_minutes: float = 10.0
    fold_idle_seconds: float = 30.0
    clean_minutes: float = 60.0
    retention_hours: int = DEFAULT_RETENTION_HOURS
    tombstone_hours: float = DEFAULT_TOMBSTONE_HOURS
    start_seconds: float = 30.0
    group: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "tables", tuple(self.tables))
        if not self.tables:
            raise PipelineRefused("the pipeline has no tables")
        if self.format not in FORMATS:
            raise PipelineRefused(f"format is one of {', '.join(FORMATS)}, not {self.format!r}")
        self._check_targets()
        self._check_options()
        for table in self.tables:
            self._check_events(table, self.rules(table))
            scheme, mark, _ = table.target.partition("://")
            if mark and self.engine == "deltalake" and scheme not in SCHEMES:
                raise PipelineRefused(
                    f"table {table.name}: engine deltalake has paths of {', '.join(SCHEMES)}, not of {scheme!r}"
                )
            if self.engine == "deltalake" and unquote(table.target) != table.target:
                raise PipelineRefused(
                    f"table {table.name}: engine deltalake takes {table.target!r} for {unquote(table.target)!r}: "
                    "choose a path without such signs"
                )

    def _check_targets(self) -> None:
        """Each table is two folders that nobody else writes to. And what is sent away must not come back."""
        taken: dict[str, str] = {}
        for table in self.tables:
            place = _one_path(table.target)
            for path in (place, changes_path(place)):
                if path in taken:
                    other = taken[path]
                    what = f"two tables have the target {other!r}"
                    if _one_path(other) != place:
                        what = f"the targets {other!r} and {table.target!r} are in each other's way at {path}"
                    raise PipelineRefused(what)
                taken[path] = table.target
        for table in self.tables:
            if table.dead_letter_topic in [each.source for each in self.tables]:
                raise PipelineRefused(f"table {table.name}: dead_letter_topic {table.dead_letter_topic!r} is a source")

    def _check_options(self) -> None:
        for name in self.options:
            if name.lower() in _OWN_OPTIONS:
                raise PipelineRefused(f"options: {name} is set by the pipeline itself")
        if self.format != "ottla":
            return
        try:
            source_options(self.source_options() | {"subscribe": "any"}, is_stream=True)
        except OptionError as error:
            raise PipelineRefused(f"options: {error}") from error

    @staticmethod
    def _check_events(table: Table, rules: Rules) -> None:
        if table.transform is None:  # else it may make rows of its own
            try:
                rules.check_for_messages()
            except RulesRefused as error:
                raise PipelineRefused(f"table {table.name}: {error}") from error

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

    def batch_options(self) -> dict[str, str]:
        """Those of `source_options` that a batch read has, too."""
        streams_alone = {name.lower() for name in STREAM_NAMES} - {name.lower() for name in BATCH_NAMES}
        return {name: value for name, value in self.source_options().items() if name.lower() not in streams_alone}

    def isolation(self) -> Isolation:
        """That of the source: where a partition ends depends on it."""
        given = {name.lower(): value for name, value in self.source_options().items()}
        is_committed = given["kafka.isolation.level"].lower() == "read_committed"
        return Isolation.READ_COMMITTED if is_committed else Isolation.READ_UNCOMMITTED

    def table(self, name: str) -> Table:
        """By the last part of its target, or by the whole of it."""
        found = [table for table in self.tables if name in (table.name, table.target)]
        if len(found) == 1:
            return found[0]
        if found:
            targets = ", ".join(table.target for table in found)
            raise PipelineRefused(f"{name!r} is the name of several tables, name one by its target: {targets}")
        raise PipelineRefused(f"no table {name!r}; there are {', '.join(table.name for table in self.tables)}")


def _one_path(target: str) -> str:
    """The same text for the same place."""
    scheme, mark, rest = target.rpartition("://")
    return f"{scheme}{mark}{posixpath.normpath(rest)}"


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
    except (Exception, SystemExit) as error:
        raise PipelineRefused(f"{_place_in(file, error)}{type(error).__name__}: {error}") from error
    if not isinstance(found, Pipeline):
        raise PipelineRefused("there is no `pipeline = Pipeline(...)` in it")
    return found


def _place_in(file: Path, error: BaseException) -> str:
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


def _table(given: dict[str, Any]) -> Table:
    check_settings(given, settings.TABLE, "a table")
    for name in ("source", "target", "keys"):
        if name not in given:
            raise PipelineRefused(f"{name} is missing in a table")
    return Table(**given)
