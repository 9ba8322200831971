"""A client of a simulated cluster: finds leaders and coordinators, asks them, and waits in simulated time.

What it does is written as steps (`ottla.broker.loop.slices`) on the loop of a machine of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from random import Random
from typing import Any, NamedTuple, TypeVar

from ottla.broker.loop.slices import Finished, Slices, Steps, Task, Waiting
from ottla.broker.network.peer import Peer, PeerFailure
from ottla.testing.simulation.machine import Machine
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.schema import Request, Response
from tests.checker.history import Event, Place
from tests.sim.story import Story

T = TypeVar("T")
Work = Generator[Waiting, None, T]

REQUEST_SECONDS = 2.0
METADATA_VERSION, FIND_COORDINATOR_VERSION = 12, 4
GROUP, TRANSACTION = 0, 1
NOT_NOW = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    }
)
"""What another try may get over."""


class Endpoint(NamedTuple):
    host: str
    port: int


class GivenUp(Exception):
    """It did not work in time, or never will; whether it was done is not known."""


class Client:
    """`name` is that of its first life; later ones count on."""

    def __init__(self, machine: Machine, bootstrap: Sequence[Endpoint], story: Story, name: str) -> None:
        assert machine.loop is not None
        self.machine = machine
        self.loop = machine.loop
        self.random = Random(f"client {machine.simulation.seed} {name}")
        self.story = story
        self.name = name
        self.lives = 0
        self.is_wanted = True
        self.wrong: list[str] = []
        """What no broker may answer."""
        self._bootstrap = list(bootstrap)
        self._slices = Slices(self.loop)
        self._peers: dict[Endpoint, Peer] = {}
        self._leaders: dict[Place, Endpoint] = {}
        self._coordinators: dict[tuple[int, str], Endpoint] = {}
        self._tasks: list[Task] = []
        self.running = 0

    # Life

    @property
    def process(self) -> str:
        return f"{self.name}.{self.lives}"

    def note(self, kind: type[Event], **values: Any) -> None:
        self.story.add(kind, self.process, **values)

    def start(self, steps: Steps) -> None:
        self.running += 1
        self._tasks.append(self._slices.start(steps, self._ended))

    def _ended(self, _result: Any, failure: Exception | None) -> None:
        self.running -= 1
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Nothing that the client began is under way any more."""
        for task in self._tasks:
            task.cancel()
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    # Waiting

    def sleep(self, seconds: float) -> Work[None]:
        def begin(finished: Finished) -> None:
            self.loop.call_later(seconds, lambda: finished(None))

        yield Waiting(begin)

    def ask(self, endpoint: Endpoint, request: Request, version: int, seconds: float = REQUEST_SECONDS) -> Work[Any]:
        """The answer, or why there is none."""
        answers: list[Response | PeerFailure] = []

        def begin(finished: Finished) -> None:
            def answered(answer: Response | PeerFailure) -> None:
                answers.append(answer)
                finished(None)

            self._peer(endpoint).send(request, version, answered, seconds)

        yield Waiting(begin)
        if isinstance(answers[0], PeerFailure):
            self.forget()
        return answers[0]

    def _peer(self, endpoint: Endpoint) -> Peer:
        if endpoint not in self._peers:
            self._peers[endpoint] = Peer(self.loop, *endpoint, self.name, chance=self.random)
        return self._peers[endpoint]

    # Who is asked

    def forget(self) -> None:
        """Ask anew who leads and who coordinates."""
        self._leaders.clear()
        self._coordinators.clear()

    def ask_any(self, request: Request, version: int) -> Work[Any]:
        return (yield from self.ask(self.random.choice(self._bootstrap), request, version))

    def leader_of(self, place: Place) -> Work[Endpoint]:
        while place not in self._leaders:
            wanted = MetadataRequestTopic(name=place.topic)
            request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
            answer = yield from self.ask_any(request, METADATA_VERSION)
            if not isinstance(answer, PeerFailure):
                self._note_leaders(answer)
            if place not in self._leaders:
                yield from self.pause()
        return self._leaders[place]

    def _note_leaders(self, answer: Any) -> None:
        endpoints = {broker.node_id: Endpoint(broker.host, broker.port) for broker in answer.brokers}
        for topic in answer.topics:
            for partition in topic.partitions:
                if partition.leader_id in endpoints:
                    self._leaders[Place(topic.name, partition.partition_index)] = endpoints[partition.leader_id]

    def coordinator_of(self, kind: int, key: str) -> Work[Endpoint]:
        while (kind, key) not in self._coordinators:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            answer = yield from self.ask_any(request, FIND_COORDINATOR_VERSION)
            if not isinstance(answer, PeerFailure) and not answer.coordinators[0].error_code:
                found = answer.coordinators[0]
                self._coordinators[kind, key] = Endpoint(found.host, found.port)
            else:
                yield from self.pause()
        return self._coordinators[kind, key]

    def pause(self) -> Work[None]:
        """Before another try."""
        yield from self.sleep(self.random.uniform(0.02, 0.2))

    def is_passing(self, code: int) -> bool:
        """Whether another try may get over an error; whom to ask is asked anew."""
        if code in NOT_NOW:
            self.forget()
            return True
        return False
