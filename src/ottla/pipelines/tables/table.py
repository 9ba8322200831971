"""A table that follows changes, kept by `deltalake` in this process: append, fold, read. See `layout` for its shape."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

from ottla.pipelines.tables.columns import Columns, merged
from ottla.pipelines.tables.layout import (
    BUCKET,
    FOLDED,
    GENERATION,
    OPEN,
    REPLACING,
    Layout,
    TableRefused,
    changes_path,
    check_whole,
    columns_of,
    fold_id,
    folded_through,
    offset_id,
    tombstones_id,
)
from ottla.pipelines.tables.plain_table import arrow_schema, cast_batches, opened, read_plain
from ottla.pipelines.tables.resolve import applied, distinct, fitted, history, latest, truncations
from ottla.pipelines.tables.tombstones import plan, tombstones_of, with_generation

Offsets = dict[tuple[str, int], int]
STEP_ROWS = 500_000
_NEVER = -1
_SNAPSHOT_ATTEMPTS = 20


class WriterFenced(Exception):
    """Another writer has taken over the table: this one must stop."""


class ChangeTable:
    """The table at `path`, made when it is not there. One writer at a time; readers as many as there are."""

    def __init__(self, path: str, layout: Layout, *, storage_options: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.layout = layout
        self._storage = dict(storage_options) if storage_options else None
        self._base = opened(path, self._storage)
        self._changes = opened(changes_path(path), self._storage)
        if self._base is not None:
            check_layout(path, layout, layout_of(self._base))
        self._open_generation = self._found_generation()
        self._fold: _Fold | None = None
        self._open_rows = self._waiting_rows()
        self.all_offsets: Offsets = {}

    # What is there

    @property
    def exists(self) -> bool:
        return self._base is not None and self._changes is not None

    def columns(self) -> Columns:
        """The columns of the source's table, as far as they are known."""
        known: Columns = {}
        for table in (self._base, self._changes):
            if table is not None:
                known = merged(known, columns_of(arrow_schema(table)))
        return known

    def offsets(self, partitions: Sequence[tuple[str, int]]) -> Offsets:
        """The last offset that the table has, of those partitions that it has any of."""
        if self._changes is None:
            return {}
        found = {place: self._changes.transaction_version(offset_id(*place)) for place in partitions}
        return {place: offset for place, offset in found.items() if offset is not None}

    def version(self) -> int:
        """Grows with every commit; -1 for a table that is not there."""
        return self._changes.version() if self._changes is not None else _NEVER

    def base_rows(self) -> int:
        return sum(self._rows_by(self._base, BUCKET).values()) if self._base is not None else 0

    def open_rows(self) -> int:
        """How many changes wait for a fold."""
        return self._open_rows

    # Appending

    def create(self, columns: Columns) -> None:
        """Make what is missing of the table, and the columns that are missing or too narrow."""
        schemas = (self.layout.base_schema(columns), self.layout.changes_schema(columns))
        for path, schema, partition in zip(
            (self.path, changes_path(self.path)), schemas, (BUCKET, GENERATION), strict=True
        ):
            if not DeltaTable.is_deltatable(path, self._storage):
                DeltaTable.create(
                    path,
                    schema,
                    mode="ignore",
                    partition_by=[partition],
                    configuration=self.layout.to_configuration(),
                    storage_options=self._storage,
                    raise_if_key_not_exists=False,
                )
        self._base, self._changes = (opened(path, self._storage) for path in (self.path, changes_path(self.path)))
        self._seen_anew()
        self._widen(columns)

    def _widen(self, columns: Columns) -> None:
        """Rewrite what holds a column in a narrower type. Costs what the table costs, and is seldom."""
        for table, partition in ((self._base, BUCKET), (self._changes, GENERATION)):
            assert table is not None
            there = arrow_schema(table)
            wider = merged(columns_of(there), columns)
            if {name: wider[name] for name in columns_of(there)} == columns_of(there):
                continue
            make = self.layout.base_schema if table is self._base else self.layout.changes_schema
            schema = make(wider)
            reader = pa.RecordBatchReader.from_batches(schema, cast_batches(table, schema))
            write_deltalake(table, reader, mode="overwrite", schema_mode="overwrite", partition_by=[partition])
            self._fold = None
        self._add_columns(columns)
        self._reload()

    def _add_columns(self, columns: Columns) -> None:
        """To the changes; the plain table gets them with the next fold."""
        assert self._changes is not None
        there = arrow_schema(self._changes)
        wanted = self.layout.changes_schema(columns)
        new = [field for field in wanted if field.name not in there.names]
        if new:
            self._changes.alter.add_columns(Schema.from_arrow(pa.schema(new)).fields)

    def append_rows(self, rows: pa.Table, offsets: Offsets) -> int:
        """Add changes that are not there yet, with the offsets up to which they are complete; how many were added.

        `rows` have the columns of a change and `_bucket`. Raises `WriterFenced` if another writer was faster.
        """
        assert self._changes is not None
        group = distinct if self.layout.is_history else latest
        kept = group(rows, self.layout.keys)
        schema = self.layout.changes_schema(merged(self.columns(), columns_of(rows.schema)))
        kept = fitted(with_generation(kept.sort_by(BUCKET), self._open_generation), schema)
        self._commit_append(kept, [(offset_id(*place), offset) for place, offset in offsets.items()])
        self._open_rows += kept.num_rows
        self.all_offsets |= offsets
        return int(kept.num_rows)

    def _commit_append(self, rows: pa.Table, versions: list[tuple[str, int]]) -> None:
        """Rows to the open generation. Two writers that do so conflict, whatever they append."""
        self._check_open()
        self._commit_rows(rows, versions)

    def _commit_rows(self, rows: pa.Table, versions: list[tuple[str, int]]) -> None:
        assert self._changes is not None
        try:
            write_deltalake(
                self._changes,
                rows,
                mode="append",
                schema_mode="merge",
                commit_properties=self._progress([*versions, (OPEN, self._open_generation)]),
            )
        except CommitFailedError as error:
            raise WriterFenced(f"another writer has taken over {self.path}") from error
        self._changes.update_incremental()

    def _check_open(self) -> None:
        """What was read behind a commit of ours may hold what another writer has done meanwhile."""
        assert self._changes is not None
        at = self._changes.transaction_version(OPEN)
        if at is not None and at > self._open_generation:
            raise WriterFenced(f"another writer has taken over {self.path}")
        if self._base is not None:
            check_whole(self.path, self._changes.transaction_version, self._base.transaction_version)

    # Folding

    def begin_fold(self) -> bool:
        """Close the open generation, so that the next steps fold it. False if there is nothing to fold."""
        if self._fold is not None:
            return True
        if self._changes is None or self._base is None:
            return False
        done = {bucket: self._folded(bucket) for bucket in range(self.layout.buckets)}
        folded = self._trimmed()
        waiting = [generation for generation in self._rows_by(self._changes, GENERATION) if generation > folded]
        if not waiting:
            return False
        # A fold that was cut goes on with the generation that it had closed.
        started = max(done.values())
        through = started if started > folded else max(waiting)
        self._open_generation = max(through + 1, self._open_generation)
        self._commit_append(arrow_schema(self._changes).empty_table(), [])
        changes = read_plain(self._changes, ds.field(GENERATION) <= through)
        left = [bucket for bucket, generation in done.items() if generation < through]
        touched = set(pc.unique(changes[BUCKET]).to_pylist())
        if truncations(changes.filter(pc.greater(changes[GENERATION], folded)), self.layout.keys).num_rows:
            touched = set(left)
        steps = self._steps([bucket for bucket in left if bucket in touched], changes) or ([left] if left else [])
        untouched = [bucket for bucket in left if bucket not in touched]
        self._fold = _Fold(through, changes, steps, untouched)
        return True

    def fold_step(self) -> bool:
        """One commit of the fold that is under way; False when it is complete."""
        if self._fold is None:
            return False
        assert self._base is not None
        if self._fold.steps:
            self._fold_buckets(self._fold.steps[0], self._fold)
            del self._fold.steps[0]
            return True
        self._trim(self._fold)
        self._fold = None
        return False

    @property
    def is_folding(self) -> bool:
        return self._fold is not None

    def fold(self) -> None:
        """Fold all there is."""
        while self.begin_fold():
            while self.fold_step():
                pass

    def _fold_buckets(self, buckets: list[int], fold: _Fold) -> None:
        assert self._base is not None
        if any(self._folded(bucket) >= fold.through for bucket in buckets + fold.untouched):
            raise WriterFenced(f"another writer folds {self.path}")
        changes = self._winning(fold.changes, buckets)
        schema = self.layout.base_schema(merged(columns_of(arrow_schema(self._base)), columns_of(changes.schema)))
        base = fitted(read_plain(self._base, ds.field(BUCKET).isin(buckets)), schema)
        if self.layout.is_history:
            new = history(base, changes, self.layout.keys, self.layout.tracked)
        else:
            new = applied(base, changes, self.layout.keys)
        write_deltalake(
            self._base,
            new,
            mode="overwrite",
            schema_mode="merge",
            predicate=f"{BUCKET} in ({', '.join(map(str, buckets))})",
            commit_properties=self._progress([(fold_id(bucket), fold.through) for bucket in buckets + fold.untouched]),
        )
        fold.untouched = []
        self._base.update_incremental()

    def _winning(self, changes: pa.Table, buckets: list[int]) -> pa.Table:
        """Of the changes in some buckets, those that count. Not of all buckets at once: appends would wait for it."""
        is_here = pc.is_in(changes[BUCKET], value_set=pa.array(buckets, pa.int32()))
        here = changes.filter(pc.or_(is_here, pc.is_null(changes[self.layout.keys[0]])))  # a truncate is everywhere
        return (distinct if self.layout.is_history else latest)(here, self.layout.keys)

    def _trim(self, fold: _Fold) -> None:
        """Replace what is folded by its tombstones."""
        assert self._changes is not None
        # Tombstones of earlier folds stay where they are: their generation says how old they are.
        trimmed = self._trimmed()
        if trimmed >= fold.through:
            raise WriterFenced(f"another writer folds {self.path}")
        new = fold.changes.filter(pc.greater(fold.changes[GENERATION], trimmed))
        tombstones = tombstones_of(new, self.layout)
        write_deltalake(
            self._changes,
            fitted(with_generation(tombstones, fold.through), arrow_schema(self._changes)),
            mode="overwrite",
            predicate=f"{GENERATION} > {trimmed} and {GENERATION} <= {fold.through}",
            commit_properties=self._progress([(FOLDED, fold.through)]),
        )
        self._changes.update_incremental()
        self._open_rows = self._waiting_rows()

    def _steps(self, buckets: list[int], changes: pa.Table) -> list[list[int]]:
        """The buckets in groups of about `STEP_ROWS` rows, those of the changes counted, too."""
        rows = self._rows_by(self._base, BUCKET) if self._base is not None else {}
        for count in changes[BUCKET].value_counts().to_pylist():
            rows[count["values"]] = rows.get(count["values"], 0) + count["counts"]
        steps: list[list[int]] = []
        size = 0
        for bucket in buckets:
            if not steps or size + rows.get(bucket, 0) > STEP_ROWS:
                steps.append([])
                size = 0
            steps[-1].append(bucket)
            size += rows.get(bucket, 0)
        return steps

    # Keeping house

    def clean(self, retention_hours: int, *, is_compacting: bool = True) -> None:
        """Join small files, and remove files that no version within the retention needs."""
        for table in (self._base, self._changes):
            if table is None:
                continue
            if is_compacting and table is self._base:
                table.optimize.compact()
            table.vacuum(retention_hours=retention_hours, dry_run=False, enforce_retention_duration=False)
            table.create_checkpoint()
            table.cleanup_metadata()
        self._reload()

    def expire_tombstones(self, hours: float, now: float | None = None) -> int:
        """Forget the deletes that were folded so long ago; how many."""
        if self._changes is None:
            return 0
        now_seconds = int(time.time() if now is None else now)
        rows = self._rows_by(self._changes, GENERATION)
        there = [generation for generation in rows if generation <= self._trimmed()]
        seen = {generation: self._changes.transaction_version(tombstones_id(generation)) for generation in there}
        found = plan(seen, hours, now_seconds)
        if found.unseen:
            versions = [(tombstones_id(each), now_seconds) for each in found.unseen]
            self._replace_generations([_NEVER], arrow_schema(self._changes).empty_table(), versions)
        if found.expired:
            self._replace_generations(found.expired, arrow_schema(self._changes).empty_table())
        for generations in found.alike:
            together = read_plain(self._changes, ds.field(GENERATION).isin(pa.array(generations, pa.int32())))
            kept = with_generation(tombstones_of(together, self.layout), generations[-1])
            self._replace_generations(generations, kept)
        return sum(rows[generation] for generation in found.expired)

    def _replace_generations(
        self, generations: list[int], tombstones: pa.Table, versions: Sequence[tuple[str, int]] = ()
    ) -> None:
        assert self._changes is not None
        write_deltalake(
            self._changes,
            fitted(tombstones, arrow_schema(self._changes)),
            mode="overwrite",
            predicate=f"{GENERATION} in ({', '.join(map(str, generations))})",
            commit_properties=self._progress(list(versions)),
        )
        self._changes.update_incremental()
        self._fold = None  # it has read what is gone now

    def folded(self) -> tuple[pa.Table, pa.Table]:
        """The rows of the plain table, and the tombstones: all there is of a table that was folded whole."""
        assert self._base is not None
        assert self._changes is not None
        return read_plain(self._base), read_plain(self._changes)

    def replace_with(self, fresh: ChangeTable) -> None:
        """Take the rows, tombstones and offsets of a table that was folded whole. Readers see one or the other.

        It is two commits. Between them, and when there is only the first, the table is not read and not written.
        """
        self.create(fresh.columns())
        assert self._base is not None
        assert self._changes is not None
        assert fresh._base is not None
        assert fresh._changes is not None
        self._fold = None
        # Generations begin behind all that were there, so that what a fold has noted stays true.
        through = max(self._open_generation, self._found_generation()) + 1
        folded = [(fold_id(bucket), through) for bucket in range(self.layout.buckets)]
        self._open_generation = through + 1  # from now on other writers are fenced
        self._commit_rows(arrow_schema(self._changes).empty_table(), [(REPLACING, through)])
        schema = arrow_schema(fresh._base)
        rows = pa.RecordBatchReader.from_batches(schema, cast_batches(fresh._base, schema))
        write_deltalake(
            self._base,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=[BUCKET],
            commit_properties=self._progress(folded),
        )
        tombstones = with_generation(read_plain(fresh._changes), through)
        offsets = [(offset_id(*place), offset) for place, offset in fresh.all_offsets.items()]
        write_deltalake(
            self._changes,
            tombstones,
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=[GENERATION],
            commit_properties=self._progress([(FOLDED, through), (OPEN, through + 1), *offsets]),
        )
        self._reload()
        self._open_rows = 0

    # Inside

    def _found_generation(self) -> int:
        """Where appends go: behind whatever a fold has closed."""
        if self._changes is None or self._base is None:
            return _NEVER
        closed = max(self._folded(bucket) for bucket in range(self.layout.buckets))
        at = self._changes.transaction_version(OPEN) or 0
        return max([closed + 1, at, *self._rows_by(self._changes, GENERATION)])

    def _trimmed(self) -> int:
        """The last generation of which only tombstones are left."""
        assert self._changes is not None
        found = self._changes.transaction_version(FOLDED)
        return _NEVER if found is None else found

    def _waiting_rows(self) -> int:
        if self._changes is None:
            return 0
        rows = self._rows_by(self._changes, GENERATION)
        return sum(count for generation, count in rows.items() if generation > self._trimmed())

    def _folded(self, bucket: int) -> int:
        assert self._base is not None
        return folded_through(self._base.transaction_version, bucket)

    def _reload(self) -> None:
        for table in (self._base, self._changes):
            assert table is not None
            table.update_incremental()
        self._seen_anew()

    def _seen_anew(self) -> None:
        """Another writer may have folded since: what is known of generations goes with the version that is known."""
        self._open_generation = max(self._open_generation, self._found_generation())
        self._open_rows = self._waiting_rows()
        self._fold = None

    @staticmethod
    def _progress(versions: list[tuple[str, int]]) -> CommitProperties:
        now_ms = int(time.time() * 1000)
        return CommitProperties(app_transactions=[Transaction(name, version, now_ms) for name, version in versions])

    @staticmethod
    def _rows_by(table: DeltaTable, partition: str) -> dict[int, int]:
        """Rows in each partition, from the table's log."""
        actions = pa.table(table.get_add_actions(flatten=True))
        if not actions.num_rows:
            return {}
        rows: dict[int, int] = {}
        parts, counts = actions[f"partition.{partition}"].to_pylist(), actions["num_records"].to_pylist()
        for part, count in zip(parts, counts, strict=True):
            rows[int(part)] = rows.get(int(part), 0) + int(count)
        return rows


class _Fold:
    """A fold under way: the generation it goes through, the changes to apply, the buckets that are left.

    Buckets without changes are noted as folded with the first commit.
    """

    def __init__(self, through: int, changes: pa.Table, steps: list[list[int]], untouched: list[int]) -> None:
        self.through, self.changes, self.steps, self.untouched = through, changes, steps, untouched


def layout_of(table: DeltaTable) -> Layout | None:
    return Layout.from_configuration(table.metadata().configuration)


def check_layout(path: str, asked: Layout, found: Layout | None) -> None:
    """What was fixed when the table was made stays as it is."""
    if found is None:
        raise TableRefused(f"{path} is a Delta table that was not made by a pipeline of Ottla")
    for name in ("keys", "scd_type", "buckets", "tracked"):
        if getattr(found, name) != getattr(asked, name):
            raise TableRefused(
                f"{path} was made with {name} {getattr(found, name)!r}, and cannot go on with {getattr(asked, name)!r}"
            )
