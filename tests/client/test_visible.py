"""What a reader may see of batches of transactions."""

from ottla.client.consumer.visible import visible_batches
from ottla.records.build import ControlMarker, build_batch, build_marker

FIRST, SECOND = 4000, 4001


def write(*contents: bytes, offset: int, producer_id: int | None = None) -> bytearray:
    if producer_id is None:
        return build_batch(list(contents), timestamp=0, base_offset=offset)
    return build_batch(
        list(contents), timestamp=0, base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=0,
        is_transactional=True,
    )  # fmt: skip


def end(producer_id: int, *, is_commit: bool, offset: int) -> bytearray:
    marker = ControlMarker(is_commit=is_commit, coordinator_epoch=0)
    return build_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp=0, base_offset=offset)


LOG = b"".join([
    write(b"a", b"b", offset=0, producer_id=FIRST),
    write(b"c", offset=2, producer_id=SECOND),
    write(b"d", offset=3),
    end(FIRST, is_commit=False, offset=4),
    write(b"e", offset=5, producer_id=FIRST),
    end(SECOND, is_commit=True, offset=6),
    end(FIRST, is_commit=True, offset=7),
    write(b"f", offset=8, producer_id=SECOND),
    end(SECOND, is_commit=False, offset=9),
])  # fmt: skip


def seen(start_offset: int = 0, aborted: list[tuple[int, int]] | None = None) -> list[bytes | None]:
    batches = visible_batches(LOG, start_offset, aborted or [])
    return [record.value for batch, is_visible in batches if is_visible for record in batch.records(start_offset)]


def test_who_reads_uncommitted_sees_all_but_the_markers() -> None:
    assert seen() == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_aborted_transactions_are_left_out_and_nothing_else_of_their_producers() -> None:
    aborted = [(FIRST, 0), (SECOND, 8)]
    assert seen(aborted=aborted) == [b"c", b"d", b"e"]
    assert seen(aborted=aborted[::-1]) == [b"c", b"d", b"e"]


def test_a_reader_may_begin_in_the_middle_of_an_aborted_transaction() -> None:
    assert seen(1, [(FIRST, 0), (SECOND, 8)]) == [b"c", b"d", b"e"]
    assert seen(4, [(FIRST, 0), (SECOND, 8)]) == [b"e"]


def test_every_batch_is_named_so_that_a_reader_gets_past_those_it_does_not_see() -> None:
    ends = [batch.header.next_offset for batch, _ in visible_batches(LOG, 0, [(FIRST, 0), (SECOND, 8)])]
    assert ends == [2, 3, 4, 5, 6, 7, 8, 9, 10]
