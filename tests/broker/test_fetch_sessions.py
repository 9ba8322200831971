"""Fetch sessions, in every right and wrong order of ids and epochs."""

from __future__ import annotations

from pathlib import Path

from ottla.broker.fetch_sessions import LARGEST_EPOCH, MOST_UNKNOWN, NO_SESSION, Fetching, FetchSessions
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from tests.sim.simulated_broker import SimulatedBroker

BY_NAME = 12
BY_ID = 17
MANY = 2500  # partitions, which are read in several rounds


def request(
    session_id: int, epoch: int, *partitions: int, forgotten: tuple[int, ...] = (), offset: int = 0
) -> FetchRequest:
    asked = [FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000) for index in partitions]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=asked)] if asked else [],
        forgotten_topics_data=[ForgottenTopic(topic="t", partitions=list(forgotten))] if forgotten else [],
    )


def test_a_session_keeps_only_a_few_partitions_that_are_not_there() -> None:
    sessions = FetchSessions(is_known=lambda key: key[1] < 10)
    known, few, many = range(10), range(10, 10 + MOST_UNKNOWN), range(10, 11 + MOST_UNKNOWN)
    assert begin(sessions, request(0, 0, *known, *many)).session_id == NO_SESSION
    session_id = begin(sessions, request(0, 0, *known, *few)).session_id
    assert session_id != NO_SESSION
    grown = begin(sessions, request(session_id, 1, many[-1]))
    assert grown.error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(sessions) == 0


def test_a_session_keeps_no_name_that_a_topic_cannot_have() -> None:
    sessions = FetchSessions()
    asked = request(0, 0, 1)
    asked.topics[0].topic = "t" * 250
    assert begin(sessions, asked).session_id == NO_SESSION
    assert len(sessions) == 0


def begin(sessions: FetchSessions, asked: FetchRequest, version: int = BY_NAME, now_ms: int = 0) -> Fetching:
    return sessions.begin(asked, version, now_ms)


def opened(*partitions: int) -> tuple[FetchSessions, int]:
    sessions = FetchSessions()
    return sessions, begin(sessions, request(0, 0, *partitions)).session_id


def indexes(fetching: Fetching) -> list[int]:
    return [index for _, index in fetching.wanted]


def test_a_request_without_a_session_is_answered_alone() -> None:
    sessions = FetchSessions()
    fetching = begin(sessions, request(0, -1, 1, 2))
    assert (fetching.session_id, fetching.is_incremental, indexes(fetching)) == (0, False, [1, 2])
    assert len(sessions) == 0


def test_a_session_is_opened_with_an_id_and_remembers() -> None:
    sessions, session_id = opened(1, 2)
    assert session_id > 0
    fetching = begin(sessions, request(session_id, 1, 3))
    assert (fetching.session_id, fetching.is_incremental, indexes(fetching)) == (session_id, True, [1, 2, 3])


def test_a_session_may_be_opened_with_no_partitions() -> None:
    _, session_id = opened()
    assert session_id > 0


def test_a_partition_named_again_is_asked_anew() -> None:
    sessions, session_id = opened(1, 2)
    fetching = begin(sessions, request(session_id, 1, 1, offset=77))
    assert fetching.wanted["t", 1].asked.fetch_offset == 77
    assert fetching.wanted["t", 2].asked.fetch_offset == 0


def test_forgotten_partitions_are_left_out() -> None:
    sessions, session_id = opened(1, 2)
    assert indexes(begin(sessions, request(session_id, 1, forgotten=(1, 9)))) == [2]


def test_forgetting_the_last_partition_closes_the_session() -> None:
    sessions, session_id = opened(1)
    assert begin(sessions, request(session_id, 1, forgotten=(1,))).session_id == 0
    assert begin(sessions, request(session_id, 2)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_wrong_epoch_is_refused_and_the_session_goes_on_expecting_the_right_one() -> None:
    sessions, session_id = opened(1)
    refused = begin(sessions, request(session_id, 2))
    assert (refused.error, refused.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    assert begin(sessions, request(session_id, 1)).session_id == session_id


def test_unknown_sessions_are_refused() -> None:
    sessions, session_id = opened(1)
    assert begin(sessions, request(session_id + 1, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert begin(sessions, request(0, 3)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_names_and_ids_do_not_mix_in_a_session() -> None:
    sessions, session_id = opened(1)
    assert begin(sessions, request(session_id, 1), BY_ID).error == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_epoch_0_with_an_id_closes_that_session_and_opens_another() -> None:
    sessions, session_id = opened(1)
    second = begin(sessions, request(session_id, 0, 2))
    assert second.session_id not in (0, session_id)
    assert len(sessions) == 1


def test_the_final_epoch_closes_the_session() -> None:
    sessions, session_id = opened(1)
    assert begin(sessions, request(session_id, -1, 1)).session_id == 0
    assert len(sessions) == 0


def test_epochs_wrap_to_1() -> None:
    sessions, session_id = opened(1)
    sessions._sessions[session_id].epoch = LARGEST_EPOCH
    assert begin(sessions, request(session_id, LARGEST_EPOCH)).session_id == session_id
    assert begin(sessions, request(session_id, 1)).session_id == session_id


def test_a_full_cache_gives_no_session_until_one_has_long_been_unused() -> None:
    sessions = FetchSessions(slots=1, eviction_ms=1000)
    first = begin(sessions, request(0, 0, 1)).session_id
    assert begin(sessions, request(0, 0, 1), now_ms=999).session_id == 0
    second = begin(sessions, request(0, 0, 1), now_ms=1000).session_id
    assert second not in (0, first)
    assert begin(sessions, request(first, 1)).error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_without_room_for_any_session_nobody_gets_one() -> None:
    assert begin(FetchSessions(slots=0), request(0, 0, 1)).session_id == NO_SESSION


def test_a_broker_without_sessions_is_read_from(tmp_path: Path) -> None:
    broker = SimulatedBroker(tmp_path, max_incremental_fetch_session_cache_slots="0")
    broker.create("t")
    answer = broker.client().ask(request(0, 0, 0), BY_NAME)
    assert (answer.error_code, answer.session_id, len(answer.responses)) == (0, NO_SESSION, 1)
    broker.stop()


def test_two_requests_of_a_session_on_two_connections(tmp_path: Path) -> None:
    """The second has the session forget what the first is reading, at any time: both are answered."""
    broker = SimulatedBroker(tmp_path)
    broker.create("t", MANY)
    first, second = broker.client(), broker.client()
    for rounds in range(8):
        opening = request(0, 0, *range(MANY))
        opening.topics[0].partitions[0].fetch_offset = rounds  # all that was written before
        session_id = first.ask(opening, BY_NAME).session_id
        assert session_id != NO_SESSION
        waiting = request(session_id, 1)
        waiting.max_wait_ms = 30_000
        going_on = first.send(waiting, BY_NAME)
        broker.advance(0.1)
        second.send(broker.produce_request("t", [b"v"]), BY_NAME)
        for _ in range(rounds):
            broker.loop.run_once()
        forgetting = second.send(request(session_id, 2, forgotten=tuple(range(MANY - 1))), BY_NAME)
        assert first.answer(going_on).error_code == 0
        assert second.answer(forgetting).error_code == 0
    assert broker.broker.metrics.failures == 0
    broker.stop()
