"""A program that bills each order once, and its tests, on a broker that they treat badly.

Run them with pytest: the fixture `ottla` comes with Ottla.
"""

from collections import Counter

import pytest

from ottla.client import Consumer, Producer

ORDERS = [b"order %d" % number for number in range(200)]


def invoice_for(order):
    return b"invoice for " + order


def bill_orders(bootstrap, is_wanted, invoice_for=invoice_for):
    """The program: an invoice for each order, as long as it is wanted."""
    with (
        Producer(bootstrap, transactional_id="billing-1") as producer,
        Consumer(bootstrap, "orders", group="billing", delivery="exactly-once", partition_bytes=500) as consumer,
    ):
        while is_wanted():
            batches = consumer.poll(wait_ms=100)
            with producer.transaction() as transaction:
                for batch in batches:
                    for order in batch.records:
                        producer.send("invoices", invoice_for(order.value))
                transaction.send_offsets(consumer)


@pytest.fixture
def shop(ottla):
    ottla.topic("orders")
    ottla.topic("invoices", partitions=3)
    for start in range(0, len(ORDERS), 10):
        ottla.put("orders", *ORDERS[start : start + 10])
    return ottla


def bill_all(shop, **options):
    bill_orders(shop.bootstrap, lambda: len(shop.values("invoices")) < len(ORDERS), **options)


def assert_each_is_billed_once(shop):
    assert Counter(shop.values("invoices")) == {invoice_for(order): 1 for order in ORDERS}
    shop.wait_for_lag_zero("billing")


@pytest.mark.parametrize("api", ["Produce", "TxnOffsetCommit", "EndTxn"])
def test_an_answer_is_lost(shop, api):
    fault = shop.faults.lose_answer(api, after=1)
    bill_all(shop)
    assert fault.count == 1
    assert_each_is_billed_once(shop)


def test_the_program_fails_and_is_started_again(shop):
    def fail_in_the_middle(order):
        if order == ORDERS[123]:
            raise ValueError(order)
        return invoice_for(order)

    with pytest.raises(ValueError):
        bill_all(shop, invoice_for=fail_in_the_middle)
    bill_all(shop)
    assert_each_is_billed_once(shop)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_network_is_bad(shop, seed):
    chance = shop.faults.at_random(seed, cut=0.02, lose_answer=0.03, delay=0.05, delay_seconds=0.02)
    bill_all(shop)
    shop.faults.clear()
    assert chance.counts.total() > 0
    assert_each_is_billed_once(shop)
