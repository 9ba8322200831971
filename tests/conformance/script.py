"""What an exchange talks through: it sends requests on named connections and keeps what came back.

Preparation (making topics, filling them) is not kept: it has exchanges of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Self

from ottla.records.build import build_batch
from ottla.wire.apis import Api
from ottla.wire.frames import encode_request
from ottla.wire.header import read_correlation_id, response_body_position
from ottla.wire.messages.api_versions import ApiVersionsRequest
from ottla.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.wire.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.registry import RESPONSES
from ottla.wire.schema import Request, Response
from tests.conformance.connection import Connection, NoFrame, Outcome
from tests.conformance.rendering import Json, Rendering

CLIENT_ID = "conformance"
ANSWER_SECONDS = 10.0
SETTLE_SECONDS = 10.0
TIMESTAMP_MS = 1_700_000_000_000
"""Of all records that an exchange does not give another."""


Addresses = Mapping[int, tuple[str, int]]
"""Of brokers by their ids."""

HIDDEN_OF_CLUSTERS = frozenset({"controller_id"})
"""Fields that anybody may be in, where there are several brokers."""


class PreparationFailed(Exception):
    """A step that only prepares the exchange was not answered as it should be."""


class BrokerSilent(PreparationFailed):
    """A broker that does not answer what prepares an exchange will not answer any other either."""


class Topic(NamedTuple):
    """Requests take what their version needs: the name or the id."""

    name: str
    id: bytes


class Pending(NamedTuple):
    """A request whose answer has not been read yet."""

    connection: str
    api: Api
    version: int
    correlation_id: int
    step: dict[str, Json]


class Script:
    def __init__(self, address: tuple[str, int], token: str, brokers: Addresses | None = None) -> None:
        """`brokers`: where there are several. The name of a connection may say which one it goes to."""
        self.steps: list[dict[str, Json]] = []
        self.apis: set[str] = set()
        """Of every request sent, in preparation too."""
        self.token = token
        self.patience_s = SETTLE_SECONDS
        """How long what is waited for may take."""
        self._address = address
        self._brokers = brokers or {}
        self._labels: set[str] = set()
        self._rendering = Rendering(token, HIDDEN_OF_CLUSTERS if brokers else frozenset())
        self._connections: dict[str, Connection] = {}
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._connections.values():
            connection.close()

    # Steps, which are kept.

    def send(
        self, request: Request, version: int | None = None, *, on: str = "main", within_s: float = ANSWER_SECONDS,
        only_own: bool = False, client_id: str | None = CLIENT_ID,
    ) -> Any:  # fmt: skip
        """Sends a request, in its highest version unless told, and returns the response, None if there is none.

        `only_own` keeps from the lists of the answer only what the exchange itself has made.
        """
        pending = self.begin(request, version, on=on, client_id=client_id)
        return self.finish(pending, within_s=within_s, only_own=only_own)

    def begin(
        self, request: Request, version: int | None = None, *, on: str = "main", client_id: str | None = CLIENT_ID
    ) -> Pending:
        """Sends a request and does not wait for its answer."""
        version = request.api.highest if version is None else version
        pending = self._post(request, version, on, client_id)
        pending.step["request"] = self._rendering.request(request, version)
        pending.step["answer"] = "no answer yet"
        self.steps.append(pending.step)
        return pending

    def finish(self, pending: Pending, *, within_s: float = ANSWER_SECONDS, only_own: bool = False) -> Any:
        response = self._receive(pending, within_s)
        if isinstance(response, NoFrame):
            pending.step["answer"] = response.value
            return None
        pending.step["answer"] = self._rendered(response, pending.version, only_own)
        return response

    def send_silent(self, request: Request, version: int, *, on: str = "main") -> None:
        """Sends a request that has no answer: that of a later request on the same connection comes first."""
        pending = self.begin(request, version, on=on)
        probe = self._post(ApiVersionsRequest(), 0, on, CLIENT_ID)
        outcome = self._connection(on).receive(ANSWER_SECONDS)
        if isinstance(outcome, NoFrame):
            pending.step["answer"] = outcome.value
            self._drop(on)
        else:
            answers_probe = read_correlation_id(outcome) == probe.correlation_id
            pending.step["answer"] = NoFrame.SILENCE.value if answers_probe else "an answer"

    def still_waits(self, pending: Pending, for_s: float = 0.15) -> None:
        """Keeps whether a request is still not answered."""
        outcome = self._connection(pending.connection).receive(for_s)
        self.steps.append({"ask": "nothing", "answer": "no answer yet" if outcome is NoFrame.SILENCE else "an answer"})

    def send_bytes(
        self, what: str, data: bytes, *, on: str = "main", answered_as: tuple[Api, int] | None = None,
        and_end: bool = False, only_own: bool = False, within_s: float = ANSWER_SECONDS,
    ) -> None:  # fmt: skip
        """Sends bytes as they are. `and_end` says that no more will come."""
        connection = self._connection(on)
        connection.send([data])
        if and_end:
            connection.end_sending()
        outcome = connection.receive(within_s)
        step: dict[str, Json] = {"ask": what}
        if isinstance(outcome, NoFrame):
            step["answer"] = outcome.value
            self._drop(on)
        elif answered_as is None:
            step["answer"] = f"{len(outcome)} bytes"
        else:
            step["answer"] = self._rendered(_decode(outcome, *answered_as), answered_as[1], only_own)
        self.steps.append(step)

    def post_bytes(self, data: bytes, *, on: str = "main") -> None:
        """Sends bytes after which more will come."""
        self._connection(on).send([data])

    def settle(
        self, request: Request, version: int | None = None, *, until: Callable[[Any], bool], on: str = "main",
        only_own: bool = False,
    ) -> Any:  # fmt: skip
        """Asks until the answer is the one that is waited for, and keeps that one or the last."""
        deadline = time.monotonic() + self.patience_s
        prepare = "prepare" if on == "main" else f"{on} prepare"
        while not until(self.ask(request, version, on=prepare)) and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.send(request, version, on=on, only_own=only_own)

    # Preparation, which is not kept.

    def ask(self, request: Request, version: int | None = None, *, on: str = "prepare") -> Any:
        return self.take(self.post(request, version, on=on))

    def post(self, request: Request, version: int | None = None, *, on: str = "prepare") -> Pending:
        """Sends a request whose answer `take` returns."""
        return self._post(request, request.api.highest if version is None else version, on, CLIENT_ID)

    def take(self, pending: Pending) -> Any:
        response = self._receive(pending, ANSWER_SECONDS)
        if isinstance(response, NoFrame):
            failure = BrokerSilent if response is NoFrame.SILENCE else PreparationFailed
            raise failure(f"{pending.step['ask']}: {response.value}")
        return response

    def ask_times(self, request: Request, times: int, *, on: str = "prepare") -> Any:
        """Sends the same request so many times at once, and returns the last answer."""
        version = request.api.highest
        connection, pending = self._connection(on), self._post(request, version, on, CLIENT_ID)
        connection.send(encode_request(pending.correlation_id, CLIENT_ID, request, version) * (times - 1))
        for _ in range(times - 1):
            if isinstance(connection.receive(ANSWER_SECONDS), NoFrame):
                raise BrokerSilent(f"{pending.step['ask']}: not all of {times} were answered")
        return self.take(pending)

    def ask_until(
        self, request: Request, version: int | None = None, *, until: Callable[[Any], bool], on: str = "prepare"
    ) -> Any:
        """Asks until the answer is the one that is waited for."""
        deadline = time.monotonic() + self.patience_s
        while not until(answer := self.ask(request, version, on=on)):
            if time.monotonic() > deadline:
                raise PreparationFailed(f"{request} was still answered with {answer}")
            time.sleep(0.01)
        return answer

    def close(self, connection: str) -> None:
        """As a client does that goes away."""
        self._drop(connection)

    def name(self, label: str = "topic") -> str:
        """A name that nothing else has; the answers show the label."""
        self._labels.add(label)
        return f"{label}-{self.token}"

    def group(self, label: str = "group") -> str:
        """The name of a group whose coordinator is ready."""
        return self._coordinated(label, key_type=0)

    def transactional_id(self, label: str = "transaction") -> str:
        """One whose coordinator is ready."""
        return self._coordinated(label, key_type=1)

    def _coordinated(self, label: str, key_type: int) -> str:
        name = self.name(label)
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[name])
        self.ask_until(request, until=lambda answer: answer.coordinators[0].error_code == 0)
        return name

    def topic(
        self, label: str = "topic", *, partitions: int = 1, values: int = 0, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """A topic that is ready; `values` records are in its partition 0, each in a batch of its own."""
        creatable = CreatableTopic(
            name=self.name(label),
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        [created] = self.ask(CreateTopicsRequest(topics=[creatable])).topics
        if created.error_code:
            raise PreparationFailed(f"{label} was not created: {created}")
        topic = self.known(label, created.topic_id)
        self.await_topic(label, partitions=partitions)
        for number in range(values):
            batch = build_batch([b"value %d" % number], keys=[b"key %d" % number], timestamp=TIMESTAMP_MS + number)
            self.produce(topic, batch)
        return topic

    def replicated(
        self, *assignments: Sequence[int], label: str = "topic", configs: Mapping[str, str] | None = None
    ) -> Topic:
        """A topic whose partitions are on these brokers, the leader first; all brokers know it, and all are in sync."""
        creatable = CreatableTopic(
            name=self.name(label),
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        [created] = self.ask(CreateTopicsRequest(topics=[creatable], timeout_ms=10_000)).topics
        if created.error_code:
            raise PreparationFailed(f"{label} was not created: {created}")
        topic = self.known(label, created.topic_id)
        for index, brokers in enumerate(assignments):
            self.await_leader(topic, brokers[0], partition=index, in_sync=len(brokers))
        return topic

    def await_leader(self, topic: Topic, leader: int, *, partition: int = 0, in_sync: int = 0) -> None:
        """Returns when every broker knows the leader, and that leads; and that many are in sync, if that is said."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic.name)], allow_auto_topic_creation=False)

        def knows(answer: Any) -> bool:
            partitions = {found.partition_index: found for found in answer.topics[0].partitions}
            found = partitions.get(partition)
            return found is not None and found.leader_id == leader and (len(found.isr_nodes) == in_sync or not in_sync)

        for node_id in self._brokers:
            self.ask_until(request, until=knows, on=f"broker {node_id} prepare")
        asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
        leads = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[asked])])
        self.ask_until(
            leads,
            until=lambda answer: answer.topics[0].partitions[0].error_code == 0,
            on=f"broker {leader} prepare",
        )

    def known(self, label: str, topic_id: bytes) -> Topic:
        """A topic whose id is told in an answer; later answers show it by its label."""
        self._rendering.topic_labels[topic_id] = label
        return Topic(self.name(label), topic_id)

    def await_topic(self, label: str = "topic", *, partitions: int = 1) -> Topic:
        """Returns when the broker leads as many partitions of a topic that was asked for."""
        name = self.name(label)
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        deadline = time.monotonic() + self.patience_s
        while time.monotonic() < deadline:
            [topic] = self.ask(request).topics
            if topic.error_code == 0 and len(topic.partitions) >= partitions and self._leads(name, partitions):
                return self.known(label, topic.topic_id)
            time.sleep(0.005)
        raise PreparationFailed(f"{label} did not become ready")

    def _leads(self, name: str, partitions: int) -> bool:
        """Kafka tells of a partition a moment before it can be used."""
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(partitions)]
        topics = [ListOffsetsTopic(name=name, partitions=asked)]
        [topic] = self.ask(ListOffsetsRequest(replica_id=-1, topics=topics)).topics
        return all(partition.error_code == 0 for partition in topic.partitions)

    def produce(self, topic: Topic, batch: bytes | bytearray, partition: int = 0, *, on: str = "prepare") -> None:
        data = TopicProduceData(
            name=topic.name,
            topic_id=topic.id,
            partition_data=[PartitionProduceData(index=partition, records=batch)],
        )
        answer = self.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[data]), 12, on=on)
        [written] = answer.responses[0].partition_responses
        if written.error_code:
            raise PreparationFailed(f"nothing could be written: {written}")

    # Below the two.

    def _post(self, request: Request, version: int, on: str, client_id: str | None) -> Pending:
        self._correlation_id += 1
        self.apis.add(request.api.name)
        parts = encode_request(self._correlation_id, client_id, request, version)
        self._connection(on).send(parts)
        step: dict[str, Json] = {"ask": f"{request.api.name} {version}"}
        if on != "main" and not on.endswith("prepare"):
            step["on"] = on
        return Pending(on, request.api, version, self._correlation_id, step)

    def _receive(self, pending: Pending, within_s: float) -> Any:
        outcome: Outcome = self._connection(pending.connection).receive(within_s)
        if isinstance(outcome, NoFrame):
            self._drop(pending.connection)
            return outcome
        if read_correlation_id(outcome) != pending.correlation_id:
            raise PreparationFailed(f"the answer to {pending.step['ask']} has another correlation id")
        response = _decode(outcome, pending.api, pending.version)
        self._rendering.learn(response, pending.connection)
        return response

    def _connection(self, name: str) -> Connection:
        if name not in self._connections:
            words = name.split()
            address = self._brokers[int(words[1])] if words[0] == "broker" else self._address
            self._connections[name] = Connection(address)
        return self._connections[name]

    def _drop(self, name: str) -> None:
        self._connections.pop(name).close()

    def _rendered(self, response: Response, version: int, only_own: bool) -> Json:
        own = {*self._rendering.topic_labels.values(), *self._labels} if only_own else None
        return self._rendering.response(response, version, own)


def _decode(frame: bytes, api: Api, version: int) -> Any:
    position = response_body_position(frame, api, version)
    response, end = RESPONSES[api.key].readers[version](frame, position)
    if end != len(frame):
        raise PreparationFailed(f"{len(frame) - end} bytes too many in an answer of {api.name} {version}")
    return response
