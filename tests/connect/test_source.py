"""Sources in a runner: exactly once, tried again, paused, begun anew."""

import contextlib
from pathlib import Path
from typing import Any

import pytest

from ottla.client import ClientOptions, Producer
from ottla.connect import supervisor
from ottla.connect.interface import ConnectorRefused
from ottla.connect.positions import Positions
from ottla.connect.reset import reset_connector
from ottla.connect.state import Wish, load_states, make_wish, now_ms
from ottla.testing import LocalBroker
from tests.connect.running import configuration_of, records_of, running, until, values_of

TYPE = "tests.connect.counting:Counting"
OPTIONS = ClientOptions()


def counting(**settings: Any) -> dict[str, dict[str, Any]]:
    return {"numbers": {"type": TYPE, "topic": "numbers", "end": 100, "transaction_ms": 20, **settings}}


def expected(*tasks: int, end: int = 100) -> list[bytes]:
    return [b"%d/%d" % (task, number) for task in tasks for number in range(end)]


def status_of(bootstrap: str, task: str = "0") -> Any:
    states, _ = load_states(bootstrap, OPTIONS)
    return states.of("numbers").tasks.get(task)


def test_each_record_is_there_once_with_its_position(ottla: LocalBroker, tmp_path: Path) -> None:
    with running(tmp_path, ottla.bootstrap, counting(tasks=2)):
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 200)
    assert sorted(values_of(ottla.bootstrap, "numbers")) == sorted(expected(0, 1))
    positions = Positions(ottla.bootstrap, OPTIONS, "numbers", 2)
    assert [positions.read_own(task) for task in (0, 1)] == [100, 100]
    with running(tmp_path, ottla.bootstrap, counting(tasks=2, end=103)):
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 206)
    assert sorted(values_of(ottla.bootstrap, "numbers")) == sorted(expected(0, 1, end=103))


def test_what_fails_is_tried_again_and_told(ottla: LocalBroker, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    with running(tmp_path, ottla.bootstrap, counting(fail_at=55, flag=str(flag), backoff_ms=20, retries=1000)):
        told = until(lambda: (found := status_of(ottla.bootstrap)) and found.error and found)
        assert told.error == "OSError: the source is away"
        flag.unlink()
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 100)
    assert values_of(ottla.bootstrap, "numbers") == expected(0)


def test_a_clock_that_is_set_back_keeps_nobody_waiting(
    ottla: LocalBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_ms = 0
    monkeypatch.setattr(supervisor, "now_ms", lambda: now_ms() - back_ms)
    flag = tmp_path / "flag"
    flag.touch()
    with running(tmp_path, ottla.bootstrap, counting(fail_at=55, flag=str(flag), backoff_ms=200, retries=1000)):
        until(lambda: (found := status_of(ottla.bootstrap)) and found.error)
        back_ms = 3_600_000
        flag.unlink()
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 100)
        until(lambda: status_of(ottla.bootstrap).time_ms < now_ms() - back_ms // 2)  # it goes on telling, too


def test_it_fails_for_good_and_is_begun_anew_by_a_user(ottla: LocalBroker, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    flag.touch()
    with running(tmp_path, ottla.bootstrap, counting(fail_at=55, flag=str(flag), backoff_ms=1, retries=1)):
        until(lambda: (found := status_of(ottla.bootstrap)) and found.state == "failed")
        flag.unlink()
        make_wish(ottla.bootstrap, OPTIONS, "numbers", Wish(restarts=1))
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 100)
    assert values_of(ottla.bootstrap, "numbers") == expected(0)


def test_a_refusal_is_not_tried_again(ottla: LocalBroker, tmp_path: Path) -> None:
    with running(tmp_path, ottla.bootstrap, counting(refuse=True)):
        told = until(lambda: (found := status_of(ottla.bootstrap)) and found.state == "failed" and found)
    assert (told.error, told.retries) == ("it does not want to", 0)


def test_a_bad_record_stops_it_or_goes_to_the_dead_letters(ottla: LocalBroker, tmp_path: Path) -> None:
    with running(tmp_path, ottla.bootstrap, counting(bad_at=33)):
        told = until(lambda: (found := status_of(ottla.bootstrap)) and found.state == "failed" and found)
    assert told.error.startswith("a bad number; with dead_letter = TOPIC")
    ottla.topic("letters")
    with running(tmp_path, ottla.bootstrap, counting(bad_at=33, dead_letter="letters")):
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 99)
    assert values_of(ottla.bootstrap, "numbers") == [each for each in expected(0) if each != b"0/33"]
    (letter,) = records_of(ottla.bootstrap, "letters")
    headers = dict(letter.headers)
    assert (letter.value, headers["dead-letter.reason"]) == (b"0/33", b"a bad number")
    assert (headers["dead-letter.connector"], headers["dead-letter.topic"]) == (b"numbers", b"numbers")


def test_pause_and_resume(ottla: LocalBroker, tmp_path: Path) -> None:
    make_wish(ottla.bootstrap, OPTIONS, "numbers", Wish(is_paused=True))
    with running(tmp_path, ottla.bootstrap, counting()):
        until(lambda: (found := status_of(ottla.bootstrap)) and found.state == "paused")
        assert values_of(ottla.bootstrap, "numbers") == []
        make_wish(ottla.bootstrap, OPTIONS, "numbers", Wish())
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 100)
    assert values_of(ottla.bootstrap, "numbers") == expected(0)


def test_reset_begins_at_the_beginning_and_not_while_it_runs(ottla: LocalBroker, tmp_path: Path) -> None:
    configuration = configuration_of(tmp_path, ottla.bootstrap, counting())
    connector = configuration.connectors["numbers"]
    assert reset_connector(configuration, connector) == "it has no positions"
    with running(tmp_path, ottla.bootstrap, counting()):
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 100)
        with pytest.raises(ConnectorRefused, match="task 0 is running in runner"):
            reset_connector(configuration, connector)
    assert reset_connector(configuration, connector) == "the positions of 1 tasks are forgotten"
    with running(tmp_path, ottla.bootstrap, counting()):
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 200)
    assert values_of(ottla.bootstrap, "numbers") == expected(0) * 2


def test_another_number_of_tasks_is_refused(ottla: LocalBroker, tmp_path: Path) -> None:
    with running(tmp_path, ottla.bootstrap, counting()):
        until(lambda: len(values_of(ottla.bootstrap, "numbers")) >= 100)
    with running(tmp_path, ottla.bootstrap, counting(tasks=2)):
        told = until(lambda: (found := status_of(ottla.bootstrap)) and found.state == "failed" and found)
    assert told.error.startswith("its positions were made with tasks = 1, and it is 2 now")


def test_an_old_position_is_found_behind_many_aborted_ones(ottla: LocalBroker) -> None:
    positions = Positions(ottla.bootstrap, OPTIONS, "numbers", 1)
    positions.ensure()
    with Producer(ottla.bootstrap, transactional_id="connect-numbers-0") as producer:
        with producer.transaction():
            producer.send_many(positions.topic, [positions.record(0, {"at": 7})])
        for number in range(120):
            with contextlib.suppress(KeyError), producer.transaction():
                producer.send_many(positions.topic, [positions.record(0, {"at": number})])
                raise KeyError
    assert positions.read_own(0) == {"at": 7}


def test_a_large_position_is_kept(ottla: LocalBroker) -> None:
    """As of many files, or many partitions."""
    positions = Positions(ottla.bootstrap, OPTIONS, "numbers", 1)
    positions.ensure()
    position = {f"file-{number}": [number, 1024, 4_000_000_000] for number in range(60_000)}
    positions.reset(position, only_task=0)
    assert positions.read_own(0) == position
