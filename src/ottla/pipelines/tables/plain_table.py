"""One Delta table through `deltalake`: opened, asked, and read into Arrow."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from ottla.pipelines.tables.reasons import first_line
from ottla.pipelines.tables.resolve import fitted


class StoreFailed(Exception):
    """A table cannot be looked at now; the text says why."""


class PlainTable(DeltaTable):
    """Remembers the app transactions of its version: to look one up costs as much as a small read."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._found: dict[str, int | None] = {}
        self._found_at: int | None = None

    def transaction_version(self, app_id: str) -> int | None:
        version = self.version()
        if version != self._found_at:
            self._found, self._found_at = {}, version
        if app_id not in self._found:
            self._found[app_id] = super().transaction_version(app_id)
        return self._found[app_id]

    def dataset(self, condition: ds.Expression | None = None) -> ds.Dataset:
        """What may hold rows for which `condition` holds.

        Arrow reads on threads of its own. One that comes back to Python while that ends takes the process down, so
        none of them is given a file of Python's: on this machine Arrow opens the files itself, elsewhere they are
        read here first.
        """
        place = urlsplit(self.table_uri)
        if place.scheme == "file":
            root = pyarrow.fs.SubTreeFileSystem(unquote(place.path), pyarrow.fs.LocalFileSystem())
            return self.to_pyarrow_dataset(filesystem=root)
        whole = self.to_pyarrow_dataset()
        fragments = [_in_memory(fragment) for fragment in whole.get_fragments(condition)]
        return ds.FileSystemDataset(fragments, whole.schema, whole.format)


def _in_memory(fragment: Any) -> Any:
    with fragment.filesystem.open_input_file(fragment.path) as file:
        content = file.read_buffer()
    return fragment.format.make_fragment(content, partition_expression=fragment.partition_expression)


def opened(path: str, storage: dict[str, str] | None) -> PlainTable | None:
    """None where there is no table; StoreFailed where that cannot be told."""
    try:
        return PlainTable(path, storage_options=storage)
    except TableNotFoundError:
        return None
    except (OSError, DeltaError) as error:
        raise StoreFailed(f"{path} cannot be read: {first_line(error)}") from error


def arrow_schema(table: DeltaTable) -> pa.Schema:
    """The table's schema in the types that we write."""
    plain = {pa.large_string(): pa.string(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
    fields = [pa.field(field.name, plain.get(field.type, field.type)) for field in pa.schema(table.schema().to_arrow())]
    return pa.schema(fields)


def read_plain(table: PlainTable, condition: ds.Expression | None = None) -> pa.Table:
    return fitted(table.dataset(condition).to_table(filter=condition), arrow_schema(table))


def cast_batches(table: PlainTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The table in a schema, batch by batch, while another is written from it.

    The writer asks for batches on threads on which `deltalake` cannot read, so a thread of our own reads.
    """
    waiting: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(maxsize=4)

    def read() -> None:
        try:
            for batch in table.dataset().to_batches():
                for fit in fitted(pa.table(batch), schema).to_batches():
                    waiting.put(fit)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=read, daemon=True).start()
    while (found := waiting.get()) is not None:
        if isinstance(found, BaseException):
            raise found
        yield found
