"""Quotas: rates, throttle times, defaults."""

from __future__ import annotations

import pytest

from ottla.broker.quotas.quotas import (
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    FORGOTTEN_AFTER_MS,
    MOST_KNOWN,
    PRODUCER_BYTE_RATE,
    Quotas,
    Rate,
    TokenBucket,
    client_entity,
)
from ottla.controller.quotas import Entity


@pytest.fixture
def quotas() -> Quotas:
    quotas = Quotas()
    quotas.set_limits(client_entity("batch"), {PRODUCER_BYTE_RATE: 1000})
    return quotas


def test_a_burst_within_ten_seconds_worth_passes(quotas: Quotas) -> None:
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 10_000, 0) == 0


def test_what_goes_beyond_waits_until_the_rate_is_down(quotas: Quotas) -> None:
    # 15,000 bytes over ten seconds are 1,500 a second: half too much, so half of ten seconds more.
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0) == 5000


def test_after_the_wait_the_client_is_under_its_quota(quotas: Quotas) -> None:
    waited_ms = quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 0, waited_ms + 6000) == 0


def test_a_wait_is_never_longer_than_all_windows(quotas: Quotas) -> None:
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 10**9, 0) == 11_000


def test_old_windows_are_forgotten(quotas: Quotas) -> None:
    quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 1000, 11_000) == 0


def test_clients_and_kinds_are_counted_apart(quotas: Quotas) -> None:
    quotas.set_limits(client_entity("other"), {PRODUCER_BYTE_RATE: 1000})
    quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    assert quotas.charge(PRODUCER_BYTE_RATE, "other", 5000, 0) == 0
    assert quotas.charge(CONSUMER_BYTE_RATE, "batch", 10**9, 0) == 0


def test_the_default_holds_for_each_client_without_a_quota_of_its_own(quotas: Quotas) -> None:
    quotas.set_limits(client_entity(None), {PRODUCER_BYTE_RATE: 10, CONSUMER_BYTE_RATE: 10})
    assert quotas.limit(PRODUCER_BYTE_RATE, "batch") == 1000
    assert quotas.limit(CONSUMER_BYTE_RATE, "batch") == 10
    assert quotas.charge(PRODUCER_BYTE_RATE, "one", 90, 0) == 0
    assert quotas.charge(PRODUCER_BYTE_RATE, "two", 90, 0) == 0


def test_a_quota_that_is_taken_away_throttles_no_more(quotas: Quotas) -> None:
    quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    quotas.set_limits(client_entity("batch"), {})
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0) == 0
    assert not quotas.are_set


def test_what_is_not_given_does_not_count(quotas: Quotas) -> None:
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", 1, 15_000, 0) == (True, 5000)
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", 1, 15_000, 0) == (False, 5000)
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", 1, 1, 12_000) == (True, 0)


def test_who_got_nothing_comes_before_who_got_something(quotas: Quotas) -> None:
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "first", 10_500, 0) == (True, 500)
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "second", 1000, 0) == (False, 500)
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "nobody", 0, 0) == (False, 500)  # it wanted nothing
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "first", 1000, 500) == (False, 1000)
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "second", 100, 500) == (True, 100)
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "second", 100, 600) == (False, 1000)
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "first", 100, 600) == (True, 100)


def test_who_does_not_come_again_holds_nobody_up(quotas: Quotas) -> None:
    quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "first", 10_500, 0)
    for number in range(200):
        quotas.take_turn(PRODUCER_BYTE_RATE, "batch", number, 1000, 0)
    assert not quotas.take_turn(PRODUCER_BYTE_RATE, "batch", "first", 1000, 11_000).throttle_ms
    assert quotas.take_turn(PRODUCER_BYTE_RATE, "batch", 0, 1000, 11_000).is_given


def test_a_quota_of_nothing_waits_as_long_as_there_is() -> None:
    rate = Rate()
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == 11_000


def test_windows_of_another_size() -> None:
    quotas = Quotas(windows=3, window_ms=2000)
    quotas.set_limits(client_entity("batch"), {PRODUCER_BYTE_RATE: 1000})
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 4000, 0) == 0  # two full windows' worth
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 10**9, 0) == 6000


BOTH: Entity = (("client-id", "c"), ("user", "u"))
ANY_CLIENT_OF_USER: Entity = (("client-id", None), ("user", "u"))
USER_ALONE: Entity = (("user", "u"),)
OF_ANY_USER: Entity = (("client-id", "c"), ("user", None))
ANY_OF_ANY: Entity = (("client-id", None), ("user", None))
ANY_USER: Entity = (("user", None),)
STRONGEST_FIRST = [
    BOTH,
    ANY_CLIENT_OF_USER,
    USER_ALONE,
    OF_ANY_USER,
    ANY_OF_ANY,
    ANY_USER,
    client_entity("c"),
    client_entity(None),
]


def test_the_strongest_quota_holds() -> None:
    quotas = Quotas()
    for number, entity in enumerate(STRONGEST_FIRST):
        quotas.set_limits(entity, {PRODUCER_BYTE_RATE: float(number)})
    for number, entity in enumerate(STRONGEST_FIRST):
        assert quotas.limit(PRODUCER_BYTE_RATE, "c", "u") == float(number)
        quotas.set_limits(entity, {})
    assert quotas.limit(PRODUCER_BYTE_RATE, "c", "u") is None


@pytest.mark.parametrize(
    ("entity", "is_shared"), [(USER_ALONE, True), (ANY_USER, True), (ANY_CLIENT_OF_USER, False), (ANY_OF_ANY, False)]
)
def test_the_clients_of_a_user_share_its_quota(entity: Entity, is_shared: bool) -> None:
    quotas = Quotas()
    quotas.set_limits(entity, {PRODUCER_BYTE_RATE: 1000})
    assert quotas.charge(PRODUCER_BYTE_RATE, "one", 9000, 0, "u") == 0
    assert (quotas.charge(PRODUCER_BYTE_RATE, "two", 9000, 0, "u") > 0) == is_shared


def test_a_bucket_gives_a_burst_and_then_waits_for_the_debt() -> None:
    bucket = TokenBucket(burst_seconds=10)
    bucket.take(100, 10, 0)
    assert bucket.throttle_ms(10, 0) == 0
    bucket.take(30, 10, 0)
    assert bucket.throttle_ms(10, 0) == 3000
    assert bucket.throttle_ms(10, 3000) == 0
    bucket.take(0, 10, 10**6)
    bucket.take(101, 10, 10**6)
    assert bucket.throttle_ms(10, 10**6) == 100


def test_an_address_that_connects_too_often_waits_at_most_a_window() -> None:
    quotas = Quotas()
    quotas.set_limits((("ip", None),), {CONNECTION_CREATION_RATE: 1})
    quotas.set_limits((("ip", "10.0.0.1"),), {CONNECTION_CREATION_RATE: 100})
    waits = [quotas.charge_connection("10.0.0.2", 0) for _ in range(100)]
    assert waits == [0] * 10 + [1000] * 90
    assert quotas.charge_connection("10.0.0.2", 11_000) == 0  # those that were turned away do not count
    assert [quotas.charge_connection("10.0.0.1", 0) for _ in range(100)] == [0] * 100


def test_who_is_idle_for_an_hour_is_forgotten() -> None:
    quotas = Quotas()
    quotas.set_limits(client_entity(None), {PRODUCER_BYTE_RATE: 1000, CONTROLLER_MUTATION_RATE: 1})
    for number in range(10):
        quotas.charge(PRODUCER_BYTE_RATE, f"client-{number}", 1, 0)
        quotas.charge_mutations(f"client-{number}", 1, 0)
    quotas.charge(PRODUCER_BYTE_RATE, "late", 1, FORGOTTEN_AFTER_MS + 1)
    quotas.charge_mutations("late", 1, FORGOTTEN_AFTER_MS + 1)
    assert quotas.known == 2


def test_a_client_that_invents_names_is_not_remembered_by_all_of_them() -> None:
    quotas = Quotas()
    quotas.set_limits(client_entity(None), {PRODUCER_BYTE_RATE: 1000, CONTROLLER_MUTATION_RATE: 1})
    for number in range(3 * MOST_KNOWN):
        quotas.charge(PRODUCER_BYTE_RATE, f"client-{number}", 1, number)
        quotas.charge_mutations(f"client-{number}", 1, number)
        if number % 1000 == 0:
            throttle_ms = quotas.charge(PRODUCER_BYTE_RATE, "steady", 2000, number)
    assert quotas.known == 2 * MOST_KNOWN
    assert throttle_ms > 0


def test_no_wait_is_longer_than_a_reply_can_tell() -> None:
    bucket = TokenBucket(burst_seconds=10)
    bucket.take(10_000, 0.001, 0)
    assert bucket.throttle_ms(0.001, 0) == 2**31 - 1
    bucket.take(1, 1e-310, 0)
    assert bucket.throttle_ms(1e-310, 0) == 2**31 - 1
    rate = Rate(count=2**31 - 1, window_ms=1000)
    rate.record(1 << 62, 0)
    assert rate.throttle_ms(1e-310, 0) == 2**31 - 1
