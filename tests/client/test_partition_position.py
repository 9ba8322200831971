"""The position of a consumer in a partition: what is finished, what is put back, what is damaged. Without I/O."""

from collections.abc import Callable, Iterable

import pytest

from ottla.client import MalformedAnswer, TopicPartition
from ottla.client.consumer.fetched_data import FetchedData
from ottla.client.consumer.hand_out import (
    HandOut,
    hand_out_arrow,
    hand_out_batches,
    hand_out_messages,
    take_batches,
)
from ottla.client.consumer.partition_position import PartitionPosition, Status
from ottla.client.serde.binding import Deserializers
from ottla.records.build import build_batch


def fetched(start: int, *sizes: int, damaged: int | None = None) -> FetchedData:
    """Batches of so many records each."""
    buffer, offset = bytearray(), start
    for number, size in enumerate(sizes):
        batch = build_batch([b"%d" % (offset + index) for index in range(size)], timestamp=0, base_offset=offset)
        if number == damaged:
            batch[-1] ^= 1
        buffer += batch
        offset += size
    return FetchedData("t", 0, start, bytes(buffer), [], offset)


def located(*data: FetchedData) -> PartitionPosition:
    place = PartitionPosition(TopicPartition("t", 0))
    place.locate(place.epoch, data[0].fetch_offset)
    for one in data:
        assert place.take(place.epoch, one)
    return place


def in_an_answer(data: FetchedData, others: int) -> FetchedData:
    """Among so many bytes of other partitions."""
    answer = memoryview(bytes(data.buffer) + bytes(others))
    return FetchedData("t", 0, data.fetch_offset, answer[: data.size_bytes], [], data.high_watermark)


def kept_bytes(data: FetchedData) -> int:
    """What stays in memory with it."""
    return len(data.buffer.obj if isinstance(data.buffer, memoryview) else data.buffer)  # type: ignore[arg-type]


def hand_out(place: PartitionPosition) -> HandOut:
    place.settle()
    entry = place.peek()
    assert entry is not None
    place.hand_out(entry)
    return HandOut([entry], Deserializers())


def test_what_is_in_hand_is_not_finished_until_more_is_asked_for() -> None:
    place = located(fetched(0, 3))
    messages = hand_out_messages(hand_out(place))
    assert [next(messages).offset for _ in range(2)] == [0, 1]
    assert (place.finished, place.position) == (1, 2)
    assert [message.offset for message in hand_out_messages(hand_out(place))] == [2]
    assert (place.finished, place.to_commit) == (3, 3)


def test_what_is_handed_back_comes_again() -> None:
    place = located(fetched(0, 3))
    messages = hand_out_messages(hand_out(place))
    next(messages), next(messages)
    place.hand_back()
    assert [message.offset for message in hand_out_messages(hand_out(place))] == [1, 2]


def test_what_was_committed_ahead_and_not_handed_out_is_given_back() -> None:
    place = located(fetched(0, 6))
    out = hand_out(place)
    out.entries[0].end = place.ahead = place.committed = 6
    messages = hand_out_messages(out)
    next(messages), next(messages)
    place.settle()
    assert (place.to_commit, place.out_to) == (2, 6)
    out = hand_out(place)
    out.entries[0].end = 6
    assert len(list(hand_out_messages(out))) == 4
    place.settle()
    assert place.to_commit is None


@pytest.mark.parametrize(
    "take", [hand_out_messages, hand_out_batches, hand_out_arrow(with_headers=False), take_batches]
)
@pytest.mark.parametrize("is_ahead", [True, False])
def test_at_most_once_nothing_is_handed_out_when_another_thread_may_have_given_it_back(
    take: Callable[[HandOut], Iterable[object]], is_ahead: bool
) -> None:
    place = located(fetched(0, 3))
    out = hand_out(place)
    out.entries[0].end = 3 if is_ahead else None
    out.is_interrupted = True
    assert len(list(take(out))) == (0 if is_ahead else 1)
    assert not is_ahead or place.position == 0


def test_sound_records_come_before_the_damage_and_nothing_behind_it() -> None:
    place = located(fetched(0, 2, 2, 2, damaged=1), fetched(6, 1))
    [batch] = take_batches(hand_out(place))
    assert [record.offset for record in batch.records] == [0, 1]
    for _ in range(2):
        place.settle()
        assert (place.finished, place.position, place.fetch_offset) == (2, 2, 2)
        assert not place.fetched
        place.take(place.epoch, fetched(2, 2, 2, damaged=0))
        with pytest.raises(MalformedAnswer, match="offset 2"):
            take_batches(hand_out(place))
    place.settle()
    place.seek(4)
    place.take(place.epoch, fetched(4, 2))
    assert [message.offset for message in hand_out_messages(hand_out(place))] == [4, 5]


def test_what_was_asked_for_before_a_move_is_stale() -> None:
    place = located(fetched(0, 2))
    epoch = place.epoch
    place.seek(10)
    assert not place.take(epoch, fetched(2, 2))
    assert (place.fetched, place.position, place.finished) == (place.fetched.__class__(), 10, 10)
    place.rewind()
    assert place.status is Status.REWINDING
    place.locate(epoch, 99)  # an answer to an older question
    assert place.status is Status.REWINDING


def test_what_is_paused_keeps_nothing_of_others_in_memory() -> None:
    """Of each, a few bytes of an answer of megabytes would keep all of it, and nobody would count that."""
    held, arriving, in_hand = [in_an_answer(fetched(start, 3), 1_000_000) for start in (3, 6, 0)]
    place = located(in_hand, held)
    messages = hand_out_messages(hand_out(place))
    next(messages)
    place.pause()
    assert kept_bytes(held) == held.size_bytes
    place.take(place.epoch, arriving)  # it was asked for before
    assert kept_bytes(arriving) == arriving.size_bytes
    place.settle()
    assert kept_bytes(in_hand) == in_hand.size_bytes
    assert place.held_bytes == sum(map(kept_bytes, place.fetched))

    place.is_paused = False
    found = [message.offset for _ in range(3) for message in hand_out_messages(hand_out(place))]
    assert found == [1, 2, 3, 4, 5, 6, 7, 8]


def test_what_is_most_of_an_answer_is_not_copied() -> None:
    place = located(in_an_answer(fetched(0, 3), 10))
    [held] = place.fetched
    buffer = held.buffer
    place.pause()
    assert held.buffer is buffer
