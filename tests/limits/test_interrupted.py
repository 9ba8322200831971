"""A request of any kind that is under way when its client goes, its topics are deleted, or the broker stops.

Nobody else notices, nothing is left behind, and no request fails in a way that nobody thought of.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from ottla.testing.simulated_client import SimulatedClient
from ottla.wire.messages.metadata import MetadataRequest
from tests.conformance import requests
from tests.limits.simulated_world import SimulatedWorld
from tests.limits.worst import WORST, Ask

MOST_ROUNDS = 30  # before it happens


def interrupted(world: SimulatedWorld, ask: Ask, chance: random.Random) -> SimulatedClient:
    """Who has sent a request, some rounds ago."""
    client = world.client()
    client.send(ask.request, ask.version)
    for _ in range(chance.randrange(MOST_ROUNDS)):
        world.simulated.loop.run_once()
        client.step()
    return client


def check_all_is_well(world: SimulatedWorld) -> None:
    broker = world.simulated.broker
    world.simulated.advance(5)
    assert world.client().ask(MetadataRequest(topics=None)).topics is not None  # others are served
    slices = broker.request_slices, broker.produce_slices, broker.coordinator_slices, broker.loading_slices
    assert not any(map(len, slices))
    assert broker.metrics.failures == 0


@pytest.mark.parametrize("api", WORST)
def test_the_client_goes(api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, chance = SimulatedWorld(tmp_path, monkeypatch), random.Random(api)
    for _ in range(2):
        interrupted(world, next(WORST[api](world)), chance).close()
        check_all_is_well(world)
    world.simulated.stop()


@pytest.mark.parametrize("api", list(WORST)[::2])
def test_the_topics_go(api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, chance = SimulatedWorld(tmp_path, monkeypatch), random.Random(api)
    interrupted(world, next(WORST[api](world)), chance)
    names = [name for name in world.simulated.broker.topics.by_name if not name.startswith("__")]
    answer = world.client().ask(requests.delete_topics(*names))
    assert not [topic for topic in answer.responses if topic.error_code]
    check_all_is_well(world)
    world.simulated.stop()


@pytest.mark.parametrize("api", list(WORST)[1::2])
def test_the_broker_stops(api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, chance = SimulatedWorld(tmp_path, monkeypatch), random.Random(api)
    interrupted(world, next(WORST[api](world)), chance)
    world.simulated.stop()
    assert world.simulated.broker.metrics.failures == 0
