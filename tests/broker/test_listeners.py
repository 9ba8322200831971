"""Listeners: what may be written, and that a client is told the address of the one it came through."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import ottla.testing
from ottla.broker.broker import Broker
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.loop.loop import Loop
from ottla.broker.network.listeners import (
    Endpoint,
    advertised_endpoint,
    check_inter_broker,
    plaintext,
    read_advertised,
    read_listeners,
)
from ottla.client import Admin
from ottla.config import ConfigError
from ottla.testing.files import SimulatedFiles
from tests.sim.simulated_broker import SimulatedBroker

PROTOCOLS = "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,SSL:SSL"


def test_listeners_by_name_in_their_order() -> None:
    listeners = read_listeners(["inside://:9092", "OUTSIDE://0.0.0.0:9093", "PLAINTEXT://[::1]:0"], PROTOCOLS)
    assert list(listeners.items()) == [
        ("INSIDE", Endpoint("", 9092)),
        ("OUTSIDE", Endpoint("0.0.0.0", 9093)),
        ("PLAINTEXT", Endpoint("::1", 0)),
    ]


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        (["localhost:9092"], "is not NAME://HOST:PORT"),
        (["PLAINTEXT://localhost"], "is not NAME://HOST:PORT"),
        (["PLAINTEXT://localhost:70000"], "is not NAME://HOST:PORT"),
        (["PLAINTEXT://a:1", "PLAINTEXT://b:2"], "PLAINTEXT is named twice"),
        (["INSIDE://a:1", "OUTSIDE://a:1"], "an address of its own"),
        (["SSL://a:1"], "SSL is SSL; Ottla serves PLAINTEXT"),
        (["OTHER://a:1"], "add OTHER:PLAINTEXT"),
    ],
)
def test_listeners_that_cannot_be(texts: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_listeners(texts, PROTOCOLS)


@pytest.mark.parametrize(
    ("text", "complaint"), [("OUTSIDE://a:1", "not among the listeners"), ("INSIDE://0.0.0.0:1", "nobody can connect")]
)
def test_advertised_listeners_that_cannot_be(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        read_advertised([text], {"INSIDE": Endpoint("", 9092)})


def test_brokers_reach_each_other_through_a_listener_that_is_there(tmp_path: Path) -> None:
    for name in (None, "", "INSIDE", "inside"):
        check_inter_broker(name, ["OUTSIDE", "INSIDE"])
    with pytest.raises(ConfigError, match="NOPE is not among the listeners: OUTSIDE, INSIDE"):
        check_inter_broker("NOPE", ["OUTSIDE", "INSIDE"])
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name"):
        SimulatedBroker(tmp_path, inter_broker_listener_name="NOPE")
    broker = SimulatedBroker(tmp_path, inter_broker_listener_name="plaintext")
    assert broker.broker.brokers.inter_broker_listener == "PLAINTEXT"
    broker.stop()


def test_what_is_not_advertised_follows_from_where_the_broker_listens() -> None:
    assert advertised_endpoint(Endpoint("127.0.0.1", 9092), None) == ("127.0.0.1", 9092)
    assert advertised_endpoint(Endpoint("127.0.0.1", 9092), Endpoint("example", 0)) == ("example", 9092)
    assert advertised_endpoint(Endpoint("", 9092), None) == (socket.getfqdn(), 9092)


def test_addresses_of_ipv6_have_brackets() -> None:
    assert plaintext("::1", 9092) == "PLAINTEXT://[::1]:9092"


def test_a_client_is_told_the_address_of_its_listener() -> None:
    settings = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
        "advertised.listeners": "INSIDE://127.0.0.1:0,OUTSIDE://localhost:0",
        "listener.security.protocol.map": PROTOCOLS,
    }
    with ottla.testing.broker(settings=settings) as broker:
        inside, outside = broker.endpoints["INSIDE"], broker.endpoints["OUTSIDE"]
        assert (inside.host, outside.host) == ("127.0.0.1", "localhost")
        for endpoint in (inside, outside):
            with Admin(f"127.0.0.1:{endpoint.port}") as admin:
                [node] = admin.describe_cluster().brokers
                assert tuple(node.address) == tuple(endpoint)


def test_a_broker_that_cannot_listen_leaves_its_data_closed() -> None:
    files = SimulatedFiles()
    broker = Broker(Loop(), files, "/data", BrokerSettings({"listeners": "SSL://:9093"}))
    with pytest.raises(ConfigError):
        broker.start()
    assert not files.exists("/data")
