"""Where replicas go: leaders evenly, replicas over racks, and to brokers that are about to go only where they must."""

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.assignment import spread
from ottla.wire.errors import ApiError

RACKS = st.sampled_from([None, "a", "b", "c", "d"])
RANDOMS = st.randoms(use_true_random=False)


@given(st.lists(RACKS, min_size=1, max_size=8), st.integers(1, 40), st.integers(0, 40), RANDOMS, st.data())
def test_a_rack_gets_no_second_replica_before_each_has_one(
    racks: list[str | None], count: int, first: int, random: Random, data: st.DataObject
) -> None:
    brokers = list(range(100, 100 + len(racks)))
    by_broker = dict(zip(brokers, racks, strict=True))
    factor = data.draw(st.integers(1, len(brokers)))
    for replicas in spread(brokers, count, factor, random, first, racks=by_broker):
        assert len(set(replicas)) == factor
        used = Counter(by_broker[broker] for broker in replicas)
        for rack, times in used.items():
            others = [name for name in set(racks) if name != rack and used[name] < racks.count(name)]
            assert all(times <= used[name] + 1 for name in others)


@given(st.lists(RACKS, min_size=1, max_size=8), st.integers(1, 40), RANDOMS, st.data())
def test_every_broker_leads_equally_whatever_its_rack(
    racks: list[str | None], count: int, random: Random, data: st.DataObject
) -> None:
    brokers = list(range(len(racks)))
    factor = data.draw(st.integers(1, len(brokers)))
    assignment = spread(brokers, count, factor, random, racks=dict(enumerate(racks)))
    leaders = [sum(replicas[0] == broker for replicas in assignment) for broker in brokers]
    assert max(leaders) - min(leaders) <= 1


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 60), RANDOMS, st.data())
def test_racks_of_equal_size_give_every_broker_about_as_many_replicas(
    racks: int, in_a_rack: int, count: int, random: Random, data: st.DataObject
) -> None:
    brokers = list(range(racks * in_a_rack))
    factor = data.draw(st.integers(1, len(brokers)))
    assignment = spread(brokers, count, factor, random, racks={broker: str(broker % racks) for broker in brokers})
    given_to = Counter(broker for replicas in assignment for broker in replicas)
    held = [given_to[broker] for broker in brokers]
    assert max(held) - min(held) <= 3


@given(st.integers(2, 7), st.integers(1, 30), RANDOMS, st.data())
def test_who_is_about_to_go_leads_nothing_and_holds_only_what_must_be(
    total: int, count: int, random: Random, data: st.DataObject
) -> None:
    brokers = list(range(total))
    unfit = data.draw(st.sets(st.sampled_from(brokers), max_size=total - 1))
    factor = data.draw(st.integers(1, total))
    for replicas in spread(brokers, count, factor, random, unfit=unfit):
        assert len(set(replicas)) == factor
        assert replicas[0] not in unfit
        assert len(unfit & set(replicas)) == max(0, factor - (total - len(unfit)))


def test_what_one_broker_leads_is_copied_to_all_others() -> None:
    assignment = spread([1, 2, 3, 4], 24, 2, Random(1))
    followers = {replicas[1] for replicas in assignment if replicas[0] == 1}
    assert followers == {2, 3, 4}


@pytest.mark.parametrize(("brokers", "unfit"), [([1], {1}), ([1, 2], {1, 2})])
def test_nobody_can_lead(brokers: list[int], unfit: set[int]) -> None:
    with pytest.raises(ApiError, match="All brokers are currently fenced"):
        spread(brokers, 1, 1, Random(1), unfit=unfit)
