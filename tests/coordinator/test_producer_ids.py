"""Producer ids come from blocks that are fetched ahead, and a failed fetch costs none."""

from collections.abc import Callable

import pytest

from ottla.coordinator.transactions.producer_ids import FEW_LEFT, NoProducerId, ProducerIds


class Blocks:
    """Who is asked for blocks, and gives them when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[range | None], None]] = []
        self.ids = ProducerIds(self.asked.append)

    def give(self, block: range | None) -> None:
        self.asked.pop()(block)


def test_ids_come_in_blocks_of_which_the_next_is_asked_for_in_time() -> None:
    blocks = Blocks()
    with pytest.raises(NoProducerId):
        blocks.ids.new()
    blocks.give(range(1000))
    given = [blocks.ids.new() for _ in range(1000 - FEW_LEFT)]
    assert not blocks.asked
    given.append(blocks.ids.new())
    assert len(blocks.asked) == 1
    given.append(blocks.ids.new())
    assert len(blocks.asked) == 1
    blocks.give(range(5000, 6000))
    given += [blocks.ids.new() for _ in range(FEW_LEFT)]
    assert given == [*range(1000), 5000, 5001]


def test_a_block_that_cannot_be_had_now_can_be_later() -> None:
    blocks = Blocks()
    told: list[bool] = []
    blocks.ids.when_fetched(lambda: told.append(blocks.ids.are_left))
    blocks.give(None)
    with pytest.raises(NoProducerId):
        blocks.ids.new()
    blocks.ids.when_fetched(lambda: told.append(blocks.ids.are_left))
    blocks.give(range(5, 6))
    assert told == [False, True]
    assert blocks.ids.new() == 5
