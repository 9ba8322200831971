"""The blocking face: each call runs the method of the asyncio one in a thread of the client's own, and waits."""

from __future__ import annotations

import asyncio
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, Unpack, cast

from ottla.client.admin import admin
from ottla.client.consumer import batch_reader, reader
from ottla.client.consumer.fetched_data import Fetched
from ottla.client.errors import ClientError
from ottla.client.group.offsets import Offset, TopicPartition
from ottla.client.loop_thread import LoopThread
from ottla.client.network.cluster import ClientOptions
from ottla.client.producer import producer, transaction
from ottla.client.producer.sending import Sending
from ottla.client.producer.statistics import ProducerStatistics

P = ParamSpec("P")
T = TypeVar("T")
Core = TypeVar("Core", bound="_Core")


class _Core(Protocol):
    async def __aenter__(self) -> Any: ...

    async def close(self) -> None: ...


class Face(Generic[Core]):
    """What all faces have. A context manager; connecting begins with it, or with `open`."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._thread = LoopThread()
        self._closing = threading.RLock()
        self._is_closing = False
        weakref.finalize(self, _dropped, core, self._thread).atexit = False

    def open(self, timeout_seconds: float | None = None) -> Self:
        """Connects. TimeoutError if that takes longer. `with` does the same, and closes in the end."""
        try:
            self._thread.run(_open, self._core, timeout_seconds)
        except BaseException:
            self.close()
            raise
        return self

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except ClientError:
            if kind is None:
                raise

    def close(self) -> None:
        """May be called again."""
        self._close()

    def _close(self, **options: Any) -> None:
        with self._closed_once() as is_mine:
            if is_mine:
                self._thread.run(self._core.close, **options)

    @contextmanager
    def _closed_once(self) -> Iterator[bool]:
        """Whether the caller is to close the core; the thread ends behind it. Others who close wait for that, but for a
        callback of the closing itself."""
        if not self._thread.is_here:  # never opened, or of another process
            self._thread.close()
            yield False
            return
        self._thread.check_other_thread()
        with self._closing:
            if self._thread.is_closed or self._is_closing:
                yield False
                return
            self._is_closing = True
            try:
                yield True
            finally:
                self._is_closing = False
                self._thread.close()


async def _open(core: _Core, timeout_seconds: float | None) -> None:
    async with asyncio.timeout(timeout_seconds):
        await core.__aenter__()


def _dropped(core: Any, thread: LoopThread) -> None:
    """Nobody has the client any more, and nobody has closed it. Its thread ends when this is over."""
    if not thread.is_closed:
        thread.call(_let_go, core)


def _let_go(core: Any) -> None:
    """In its thread. All that is at work is told to end before anything is taken from under it, and before the core
    goes: nobody else keeps its tasks, and those that are collected while they wait would complain."""
    tasks = asyncio.all_tasks()
    if hasattr(core, "_drop"):
        core._drop()
    for task in tasks:
        task.cancel()
    if hasattr(core, "_cluster"):
        core._cluster.begin_to_close()


def Blocking(  # noqa: N802 - it stands where a class stood, and makes what looks like methods
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], T]:
    """A method of the core, with its parameters, its result and its words, that blocks."""

    @functools.wraps(method)
    def call(face: Any, *arguments: P.args, **options: P.kwargs) -> T:
        return face._thread.run(method, face._core, *arguments, **options)  # type: ignore[no-any-return]

    return cast("Callable[Concatenate[Any, P], T]", call)


def options_of(core: type) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """For the constructor of a face: `help` shows the options that it passes on."""

    def with_signature(constructor: Callable[P, None]) -> Callable[P, None]:
        constructor.__signature__ = inspect.signature(core.__init__)  # type: ignore[attr-defined, misc]
        return constructor

    return with_signature


class Admin(Face[admin.Admin]):
    __doc__ = admin.Admin.__doc__

    def __init__(
        self, bootstrap: str | Sequence[str], options: ClientOptions = ClientOptions()  # noqa: B008 - immutable
    ) -> None:  # fmt: skip
        super().__init__(admin.Admin(bootstrap, options))

    create_topics = Blocking(admin.Admin.create_topics)
    list_topics = Blocking(admin.Admin.list_topics)
    describe_topics = Blocking(admin.Admin.describe_topics)
    delete_topics = Blocking(admin.Admin.delete_topics)
    expand_topics = Blocking(admin.Admin.expand_topics)
    expand_in_order = Blocking(admin.Admin.expand_in_order)
    describe_growths = Blocking(admin.Admin.describe_growths)
    find_offsets = Blocking(admin.Admin.find_offsets)
    describe_configs = Blocking(admin.Admin.describe_configs)
    alter_configs = Blocking(admin.Admin.alter_configs)
    describe_cluster = Blocking(admin.Admin.describe_cluster)
    elect_leaders = Blocking(admin.Admin.elect_leaders)
    unregister_broker = Blocking(admin.Admin.unregister_broker)
    alter_partition_reassignments = Blocking(admin.Admin.alter_partition_reassignments)
    list_partition_reassignments = Blocking(admin.Admin.list_partition_reassignments)
    list_transactions = Blocking(admin.Admin.list_transactions)
    describe_transaction = Blocking(admin.Admin.describe_transaction)
    describe_producers = Blocking(admin.Admin.describe_producers)
    abort_transaction = Blocking(admin.Admin.abort_transaction)
    abort_in_partition = Blocking(admin.Admin.abort_in_partition)
    fence_producers = Blocking(admin.Admin.fence_producers)
    list_groups = Blocking(admin.Admin.list_groups)
    describe_groups = Blocking(admin.Admin.describe_groups)
    delete_groups = Blocking(admin.Admin.delete_groups)
    list_group_offsets = Blocking(admin.Admin.list_group_offsets)
    alter_group_offsets = Blocking(admin.Admin.alter_group_offsets)
    delete_group_offsets = Blocking(admin.Admin.delete_group_offsets)
    group_lags = Blocking(admin.Admin.group_lags)
    count_records = Blocking(admin.Admin.count_records)
    delete_records = Blocking(admin.Admin.delete_records)
    describe_log_dirs = Blocking(admin.Admin.describe_log_dirs)
    describe_quotas = Blocking(admin.Admin.describe_quotas)
    alter_quotas = Blocking(admin.Admin.alter_quotas)


class Producer(Sending, Face[producer.Producer]):
    __doc__ = producer.Producer.__doc__

    @options_of(producer.Producer)
    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[producer.ProducerOptions]) -> None:
        super().__init__(producer.Producer(bootstrap, **options))
        self._buffer = self._core._buffer
        self._serialize = self._core._serialize

    send_many = Blocking(producer.Producer.send_many)
    send_batches = Blocking(producer.Producer.send_batches)
    flush = Blocking(producer.Producer.flush)

    def close(self, timeout_seconds: float | None = None) -> None:
        """Writes what is on its way, then ends. Raises DeliveryFailed if that failed and nobody has asked for it.

        What is not written within the timeout, or when this is interrupted, fails with ProducerClosed. May be called
        again.
        """
        self._close(timeout_seconds=timeout_seconds)

    def statistics(self) -> ProducerStatistics:
        """What it has done since it was opened, and what it holds now."""
        return self._core.statistics()

    def transaction(self) -> Transaction:
        """All that is sent inside is visible together, or not at all: `with producer.transaction() as t`.

        An exception that leaves the block aborts it. Needs a `transactional_id`.
        """
        return Transaction(self._core.transaction(), self._thread)

    @property
    def max_block_ms(self) -> int:
        return self._core.max_block_ms

    def _wait_for_room(self) -> None:
        if self._thread.is_current:  # a callback: nobody else would make room
            raise self._buffer.full()
        self._buffer.wait_for_room(self.max_block_ms / 1000)


class Transaction:
    """Made by `Producer.transaction`. What the producer sends inside of it is part of it."""

    def __init__(self, core: transaction.Transaction, thread: LoopThread) -> None:
        self._core = core
        self._thread = thread

    def __enter__(self) -> Self:
        self._thread.run(self._core.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._core.__aexit__, kind, error, trace)

    send_offsets = Blocking(transaction.Transaction.send_offsets)


class BatchReader(Face[batch_reader.BatchReader]):
    __doc__ = batch_reader.BatchReader.__doc__

    @options_of(batch_reader.BatchReader)
    def __init__(self, bootstrap: str | Sequence[str], **options: Unpack[batch_reader.BatchReaderOptions]) -> None:
        super().__init__(batch_reader.BatchReader(bootstrap, **options))

    poll = Blocking(batch_reader.BatchReader.poll)

    def assign(self, offsets: Mapping[TopicPartition, int | Offset]) -> None:
        """Read these partitions too, or from another offset on. An Offset with the leader epoch of the record before
        it, from `FetchedData.epochs`, lets the leader look whether that is still there."""
        self._thread.run(_now, self._core.assign, offsets)

    def drop(self, places: Iterable[TopicPartition]) -> None:
        """Read these no more."""
        self._thread.run(_now, self._core.drop, places)

    @property
    def offsets(self) -> Mapping[TopicPartition, int]:
        return self._core.offsets


async def _now(call: Callable[[T], None], argument: T) -> None:
    """On the client's own thread."""
    call(argument)


class Reader(Face[reader.Reader]):
    __doc__ = reader.Reader.__doc__

    @options_of(reader.Reader)
    def __init__(
        self, bootstrap: str | Sequence[str], topic: str, partitions: Sequence[int] | None = None,
        **options: Unpack[reader.ReaderOptions],
    ) -> None:  # fmt: skip
        super().__init__(reader.Reader(bootstrap, topic, partitions, **options))

    poll = Blocking(reader.Reader.poll)
    poll_data = Blocking(reader.Reader.poll_data)
    left = Blocking(reader.Reader.left)

    def __iter__(self) -> Iterator[Fetched]:
        """Until the end, if there is one."""
        while not self.is_done:
            fetched = self._core._take_one()
            if fetched is None:
                self._thread.run(self._core._fill)
            else:
                yield fetched

    @property
    def topic_id(self) -> bytes | None:
        return self._core.topic_id

    @property
    def is_done(self) -> bool:
        return self._core.is_done

    @property
    def offsets(self) -> Mapping[int, int]:
        return self._core.offsets
