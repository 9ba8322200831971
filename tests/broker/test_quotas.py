"""Quotas: rates, throttle times, defaults."""

from __future__ import annotations

import pytest

from ottla.broker.quotas import (
    CONSUMER_BYTE_RATE,
    DEFAULT_CLIENT,
    PRODUCER_BYTE_RATE,
    Quotas,
    Rate,
)


@pytest.fixture
def quotas() -> Quotas:
    quotas = Quotas()
    quotas.set_limits("batch", {PRODUCER_BYTE_RATE: 1000})
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
    quotas.set_limits("other", {PRODUCER_BYTE_RATE: 1000})
    quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    assert quotas.charge(PRODUCER_BYTE_RATE, "other", 5000, 0) == 0
    assert quotas.charge(CONSUMER_BYTE_RATE, "batch", 10**9, 0) == 0


def test_the_default_holds_for_each_client_without_a_quota_of_its_own(quotas: Quotas) -> None:
    quotas.set_limits(DEFAULT_CLIENT, {PRODUCER_BYTE_RATE: 10, CONSUMER_BYTE_RATE: 10})
    assert quotas.limit(PRODUCER_BYTE_RATE, "batch") == 1000
    assert quotas.limit(CONSUMER_BYTE_RATE, "batch") == 10
    assert quotas.charge(PRODUCER_BYTE_RATE, "one", 90, 0) == 0
    assert quotas.charge(PRODUCER_BYTE_RATE, "two", 90, 0) == 0


def test_a_quota_that_is_taken_away_throttles_no_more(quotas: Quotas) -> None:
    quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    quotas.set_limits("batch", {})
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0) == 0
    assert quotas.clients() == []


def test_what_was_not_given_is_refunded(quotas: Quotas) -> None:
    quotas.charge(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    quotas.refund(PRODUCER_BYTE_RATE, "batch", 15_000, 0)
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 10_000, 0) == 0


def test_a_quota_of_nothing_waits_as_long_as_there_is() -> None:
    rate = Rate()
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == 11_000


def test_windows_of_another_size() -> None:
    quotas = Quotas(windows=3, window_ms=2000)
    quotas.set_limits("batch", {PRODUCER_BYTE_RATE: 1000})
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 4000, 0) == 0  # two full windows' worth
    assert quotas.charge(PRODUCER_BYTE_RATE, "batch", 10**9, 0) == 6000
