"""Topics that come, grow and go: a crash, a stop or a closed connection between any two rounds of the loop.

Each round makes one small step, so that every state in between is met.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.broker.controller import applier, topics
from ottla.broker.handlers import metadata
from ottla.broker.loop import slices
from ottla.testing.files import Effect
from ottla.testing.loss import SYNCED_ONLY
from ottla.wire.errors import ApiError, ErrorCode
from ottla.wire.messages.create_partitions import CreatePartitionsTopic
from ottla.wire.messages.metadata import MetadataRequest
from ottla.wire.schema import Request
from tests.conformance import requests
from tests.conformance.script import Topic
from tests.sim.simulated_broker import FETCH_VERSION, SimulatedBroker, fetch_request, fetched_values

COUNT, MORE = 6, 12
MOST_ROUNDS = 30
NO_ID = bytes(16)
COUNTS = {"create": (0, COUNT), "expand": (COUNT, MORE), "delete": (COUNT, 0)}  # of partitions, before and after
TWICE = {"create": ErrorCode.TOPIC_ALREADY_EXISTS, "delete": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST_STEPS", 1)
    monkeypatch.setattr(slices, "AT_ONCE_SECONDS", -1.0)
    monkeypatch.setattr(applier, "PARTITIONS_A_STEP", 2)
    monkeypatch.setattr(metadata, "PARTITIONS_A_STEP", 1)


class Story:
    """A broker, what is asked of it, and what it may look like afterwards."""

    def __init__(self, folder: Path, change: str) -> None:
        folder.mkdir()
        self.folder = folder
        self.change = change
        self.broker = SimulatedBroker(folder)
        self.client = self.broker.client()
        if change != "create":
            self.broker.create("t", COUNT)
            for index in range(COUNT):
                request = self.broker.produce_request("t", [b"%d" % index], partition=index)
                assert self.client.ask(request, 12).responses[0].partition_responses[0].error_code == 0
        self.number = self.client.send(self._request())

    def _request(self) -> Request:
        return {
            "create": requests.create_topics(requests.creatable("t", partitions=COUNT)),
            "expand": requests.create_partitions(("t", MORE, None)),
            "delete": requests.delete_topics("t"),
        }[self.change]

    def run(self, rounds: int) -> bool:
        """So many rounds; whether the change was answered in them. Nobody ever sees a part of a topic."""
        for _ in range(rounds):
            self.broker.loop.run_once()
            assert self._partition_count() in COUNTS[self.change]
        self.client.step()
        return self.number in self.client.answers

    def start_again(self) -> None:
        self.broker = SimulatedBroker(self.folder, files=self.broker.files)
        self.client = self.broker.client()

    def check(self, *, was_made: bool) -> None:
        """The topic is there whole, or not at all. Whoever was told that a change was made finds it made."""
        count = self._partition_count()
        before, after = COUNTS[self.change]
        assert count == after if was_made else count in (before, after)
        assert sorted(self.broker.broker.logs.logs) == [("t", index) for index in range(count)]
        assert len(self.broker.broker.controller.cluster.states.get("t", ())) == count
        if count and self.change != "create":
            self._check_records()

    def _partition_count(self) -> int:
        topics = self.broker.broker.topics
        return topics.by_name["t"].partition_count if "t" in topics.by_name else 0

    def _check_records(self) -> None:
        for index in range(COUNT):
            answer = self.client.ask(fetch_request("t", 0, partition=index), FETCH_VERSION)
            assert fetched_values(answer.responses[0].partitions[0]) == [b"%d" % index]

    def make_the_change(self) -> None:
        """Ask again: it is made, or was."""
        answer = self.client.ask(self._request())
        [result] = getattr(answer, {"create": "topics", "expand": "results", "delete": "responses"}[self.change])
        assert result.error_code in (0, TWICE.get(self.change, ErrorCode.INVALID_PARTITIONS))
        self.check(was_made=True)
        if self.change == "delete":
            self.broker.create("t", 2)
            answer = self.client.ask(fetch_request("t", 0), FETCH_VERSION)
            assert fetched_values(answer.responses[0].partitions[0]) == []

    def end(self) -> None:
        assert self.broker.broker.metrics.failures == 0
        self.broker.stop()


def kill(story: Story) -> None:
    story.broker.abandon()
    story.start_again()


def lose_power(story: Story) -> None:
    story.broker.abandon()
    story.broker.files.crash(SYNCED_ONLY)
    story.start_again()


def stop(story: Story) -> None:
    story.broker.stop()
    story.start_again()


def close_connection(story: Story) -> None:
    story.client.close()
    story.broker.advance(1)
    story.client = story.broker.client()


def stories(folder: Path, change: str) -> Iterator[tuple[Story, bool]]:
    """The same change, interrupted later each time, until it is answered before that."""
    for rounds in range(MOST_ROUNDS):
        story = Story(folder / str(rounds), change)
        is_answered = story.run(rounds)
        yield story, is_answered
        if is_answered:
            return
    raise AssertionError("the change was never answered")


@pytest.mark.parametrize("change", ["create", "expand", "delete"])
@pytest.mark.parametrize("interrupt", [kill, stop, close_connection])
def test_a_topic_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, change: str, interrupt: Callable[[Story], None]
) -> None:
    for story, is_answered in stories(tmp_path, change):
        interrupt(story)
        story.check(was_made=is_answered)
        story.make_the_change()
        story.end()


def test_what_was_created_and_answered_outlasts_a_loss_of_power(tmp_path: Path) -> None:
    for story, is_answered in stories(tmp_path, "create"):
        lose_power(story)
        story.check(was_made=is_answered)
        story.make_the_change()
        story.end()


def test_a_clean_stop_leaves_nothing_of_a_deleted_topic_in_the_way(tmp_path: Path) -> None:
    for story, _ in stories(tmp_path, "delete"):
        stop(story)
        names = story.broker.files.sizes(str(story.folder))
        assert not [name for name in names if name.endswith("-stray")]
        story.end()


def test_a_request_that_is_given_up_ends_between_two_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "TOPICS_A_PART", 2)
    names = [f"t-{number}" for number in range(6)]
    request = requests.create_topics(*(requests.creatable(name, partitions=4) for name in names))
    seen = set()
    for rounds in range(40):
        folder = tmp_path / str(rounds)
        folder.mkdir()
        broker = SimulatedBroker(folder)
        client = broker.client()
        client.send(request)
        for _ in range(rounds):
            broker.loop.run_once()
        for server in broker.broker.frontend.servers:
            for connection in list(server.connections):
                connection.close("a test wants it")  # the broker notices a client's end when the request is done
        broker.advance(1)
        created = list(broker.broker.topics.by_name)
        seen.add(len(created))
        assert created == names[: len(created)] == list(broker.broker.controller.cluster.topics)
        assert set(broker.broker.logs.logs) == {(name, index) for name in created for index in range(4)}
        assert not broker.broker.request_slices
        codes = [topic.error_code for topic in broker.client().ask(request).topics]
        assert codes == [ErrorCode.TOPIC_ALREADY_EXISTS] * len(created) + [0] * (6 - len(created))
        broker.stop()
    assert seen == {0, 2, 4, 6}


def test_events_are_decided_in_turn(tmp_path: Path) -> None:
    """Two who want the same name at the same time: one of them gets it."""
    for seed in range(10):
        folder = tmp_path / str(seed)
        folder.mkdir()
        broker = SimulatedBroker(folder, seed)
        clients = [broker.client() for _ in range(4)]
        request = requests.create_topics(requests.creatable("t", partitions=COUNT))
        numbers = [client.send(request) for client in clients]
        answers = [client.answer(number) for client, number in zip(clients, numbers, strict=True)]
        codes = sorted(answer.topics[0].error_code for answer in answers)
        assert codes == [0] + [ErrorCode.TOPIC_ALREADY_EXISTS] * 3
        broker.stop()


def users_of(topic: Topic) -> dict[str, Request]:
    """Requests that take several steps over the partitions of a topic."""
    indexes = list(range(COUNT))
    return {
        "expand": requests.create_partitions((topic.name, MORE, None)),
        "configure": requests.change_configs(2, topic.name, [("retention.ms", 0, "7")]),
        "list offsets": requests.list_offsets(topic, -1, partitions=indexes),
        "delete": requests.delete_topics(topic.name),
    }


@pytest.mark.parametrize("user", users_of(Topic("t", NO_ID)))
def test_a_topic_that_goes_between_two_slices_of_a_request(tmp_path: Path, user: str) -> None:
    for rounds in range(12):
        folder = tmp_path / str(rounds)
        folder.mkdir()
        broker = SimulatedBroker(folder)
        broker.create("t", COUNT)
        topic = Topic("t", broker.broker.topics.by_name["t"].topic_id)
        first, second = broker.client(), broker.client()
        number = first.send(users_of(topic)[user])
        for _ in range(rounds):
            broker.loop.run_once()
        deletion = second.send(requests.delete_topics("t"))
        first.answer(number)
        assert second.answer(deletion).responses[0].error_code in (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        assert not broker.broker.topics.by_name
        assert not broker.broker.logs.logs
        assert not broker.broker.controller.cluster.topics
        assert broker.broker.metrics.failures == 0
        broker.stop()


def test_a_batch_that_meets_the_deletion_of_its_topic_is_told_so(tmp_path: Path) -> None:
    """In whichever round it comes: it is written, or there is no such topic any more."""
    broker = SimulatedBroker(tmp_path)
    broker.create("t", COUNT)
    producer, deleter = broker.client(), broker.client()
    request = broker.produce_request("t", [b"value"])
    numbers = [producer.send(request, 12)]
    deletion = deleter.send(requests.delete_topics("t"))
    while broker.broker.topics.by_name or len(numbers) < MOST_ROUNDS:
        broker.loop.run_once()
        numbers.append(producer.send(request, 12))
    answers = [producer.answer(number) for number in numbers]
    codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
    assert set(codes) == {0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert deleter.answer(deletion).responses[0].error_code == 0
    broker.stop()


def test_what_follows_partitions_that_could_not_be_made_is_not_made_in_their_place(tmp_path: Path) -> None:
    broker = SimulatedBroker(tmp_path)
    broker.create("t", 2)
    broker.files.make_folder(f"{tmp_path}/t-2")  # left behind, and it cannot be put out of the way
    broker.files.arm(broker.files.operation_count + 1, Effect.FAIL)
    outcomes: list[dict[str, object]] = []
    for count in (3, 5):
        steps = broker.broker.topic_requests.expand([CreatePartitionsTopic(name="t", count=count, assignments=None)])
        broker.broker.request_slices.start(steps, lambda found, _failure: outcomes.append(found))
    broker.advance(1)
    codes = [outcome["t"].code for outcome in outcomes if isinstance(outcome["t"], ApiError)]
    assert codes == [ErrorCode.KAFKA_STORAGE_ERROR] * 2
    assert [partition.index for partition in broker.broker.topics.by_name["t"].partitions] == [0, 1]
    assert len(broker.broker.controller.cluster.topics["t"].replicas) == 2
    assert not [path for path in broker.store.nodes if path.startswith("/brokers/topics/t/partitions/2")]
    answer = broker.client().ask(requests.create_partitions(("t", 4, None)))  # when it works again
    assert answer.results[0].error_code == 0
    assert [partition.index for partition in broker.broker.topics.by_name["t"].partitions] == [0, 1, 2, 3]
    broker.stop()


def test_metadata_has_all_partitions_of_a_topic_that_goes_meanwhile(tmp_path: Path) -> None:
    count = 60
    broker = SimulatedBroker(tmp_path)
    broker.create("t", count)
    first, second = broker.client(), broker.client()
    number = first.send(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    for _ in range(3):
        broker.loop.run_once()
    deletion = second.send(requests.delete_topics("t"))
    while "t" in broker.broker.topics.by_name:
        broker.loop.run_once()
    first.step()
    assert number not in first.answers  # it is under way still
    assert len(first.answer(number).topics[0].partitions) == count
    assert second.answer(deletion).responses[0].error_code == 0
    broker.stop()
