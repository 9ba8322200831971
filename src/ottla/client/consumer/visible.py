"""What of the fetched batches a reader may see: never the markers, and nothing of an aborted transaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ottla.records.batch import Buffer, check_batch
from ottla.records.build import read_marker
from ottla.records.read import Batch, read_batches


def visible_batches(
    buffer: Buffer, start_offset: int, aborted: Iterable[tuple[int, int]] = (), *, check_crc: bool = True
) -> Iterator[tuple[Batch, bool]]:
    """Each whole batch from `start_offset` on, and whether its records may be seen.

    `aborted` are the transactions that were aborted: producer id and first offset, as the broker tells a reader
    of committed records. One that a reader of uncommitted records does not ask for is left out, so all is seen.
    Without `check_crc` the checksums of those that may not be seen are checked all the same: nobody else looks at them,
    and a producer id that has rotted must not hide records.
    """
    waiting = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    aborting: set[int] = set()
    for batch in read_batches(buffer, start_offset=start_offset, check_crc=check_crc, with_control=True):
        header = batch.header
        while waiting and waiting[-1][1] <= header.last_offset:
            aborting.add(waiting.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and not read_marker(batch.bytes).is_commit:
                aborting.discard(header.producer_id)
            yield batch, False
        elif header.is_transactional and header.producer_id in aborting:
            if not check_crc:
                check_batch(batch.bytes)
            yield batch, False
        else:
            yield batch, True
