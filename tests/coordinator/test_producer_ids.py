"""Producer ids come from blocks, and a failed claim costs none."""

import pytest

from ottla.coordinator.producer_ids import NoProducerId, ProducerIds


def test_ids_come_in_blocks() -> None:
    blocks = iter([range(2), range(10, 12)])
    ids = ProducerIds(lambda: next(blocks))
    assert [ids.new() for _ in range(4)] == [0, 1, 10, 11]


def test_a_block_that_cannot_be_had_now_can_be_later() -> None:
    answers = iter([None, range(5, 6)])

    def claim() -> range:
        answer = next(answers)
        if answer is None:
            raise NoProducerId
        return answer

    ids = ProducerIds(claim)
    with pytest.raises(NoProducerId):
        ids.new()
    assert ids.new() == 5
