"""Faults that a test injects between a client and the broker: errors, delays, silence and cut connections.

    broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2, topic="orders")
    broker.faults.lose_answer("Produce")

A fault waits for requests of one API, lets `after` of them pass, meets the next `times`, and is over. Those of one API
are met in the order in which they were made, so a test reads like what happens in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from ottla.broker.dispatch import Dispatch
from ottla.broker.network.slot import Slot
from ottla.testing.chance import Chance, RequestOdds
from ottla.testing.refusals import can_be_refused, refusal
from ottla.wire import apis
from ottla.wire.apis import Api
from ottla.wire.errors import ErrorCode, ProtocolError
from ottla.wire.frames import decode_request_body, encode_response
from ottla.wire.header import RequestHeader, read_request_header
from ottla.wire.registry import REQUESTS
from ottla.wire.schema import Request

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.loop.slices import Steps
    from ottla.broker.network.connection import Connection

_APIS_BY_NAME = {api.name.lower(): api for api in apis.APIS}

_TOPIC_FIELDS = frozenset(
    {"topics", "topic_data", "v3_and_below_topics", "topic_names", "topic_partitions", "subscribed_topic_names"}
)
"""Of requests that name topics."""

Effect = Callable[["FaultyDispatch", "Connection", memoryview, RequestHeader, Request], None]


class Fault:
    """One fault, and how often it was met."""

    def __init__(
        self, api: Api, effect: Effect, times: int, after: int, topic: str | None, client_id: str | None
    ) -> None:
        self.api = api
        self.effect = effect
        self.count = 0
        self._times = times
        self._after = after
        self.topic = topic
        self._client_id = client_id
        self._met = threading.Condition()

    def __repr__(self) -> str:
        return f"<Fault of {self.api.name}, met {self.count} times>"

    def wait(self, timeout: float = 10.0, *, count: int = 1) -> None:
        """Until it was met so often; AssertionError if it was not in that time."""
        with self._met:
            is_met = self._met.wait_for(lambda: self.count >= count, timeout)
        often = "no" if not self.count else f"only {self.count}"
        assert is_met, f"{often} {self.api.name} request met the fault within {timeout:g} s"

    def cancel(self) -> None:
        self._times = 0

    @property
    def is_over(self) -> bool:
        return self.count >= self._times

    def meets(self, header: RequestHeader, request: Request, topic_name: Callable[[bytes], str]) -> bool:
        """Count a request that this fault waits for; whether it happens to this one."""
        if header.api is not self.api or self.is_over:
            return False
        if self._client_id is not None and header.client_id != self._client_id:
            return False
        if self.topic is not None and self.topic not in _topics_of(request, topic_name):
            return False
        if self._after:
            self._after -= 1
            return False
        with self._met:
            self.count += 1
            self._met.notify_all()
        return True


class Faults:
    """The faults of one broker. Every method may be called from any thread; names of APIs in any case."""

    def __init__(self) -> None:
        self.waiting: tuple[Fault, ...] = ()
        self.chance: Chance | None = None

    @property
    def are_none(self) -> bool:
        return not self.waiting and self.chance is None

    def error(self, api: str, code: str | int, *, times: int = 1, **options: Any) -> Fault:
        """Answer with an error, by its name or number, and do nothing else."""
        number = ErrorCode[code.upper()] if isinstance(code, str) else ErrorCode(code)
        if number is ErrorCode.NONE:
            raise ValueError("NONE is no error: to meet a request and let it pass, watch it")
        found = _api(api)
        if found is not apis.METADATA and not can_be_refused(found):
            raise ValueError(f"{found.name} has no answer that only refuses; cut it, delay it or lose its answer")
        return self._add(found, lambda dispatch, *request: dispatch.refuse(number, *request), times, options)

    def delay(self, api: str, seconds: float, *, times: int = 1, **options: Any) -> Fault:
        """Look at the request, and at all that follow on its connection, only after a while."""
        _check_seconds(seconds)
        return self._add(_api(api), lambda dispatch, *request: dispatch.delay(seconds, *request), times, options)

    def silence(self, api: str, *, times: int = 1, **options: Any) -> Fault:
        """Do nothing and never answer, as a broker that hangs."""
        return self._add(_api(api), lambda dispatch, *request: dispatch.silence(*request), times, options)

    def cut(self, api: str, *, times: int = 1, **options: Any) -> Fault:
        """Cut the connection when the request comes, and do nothing."""
        return self._add(_api(api), lambda dispatch, *request: dispatch.cut(*request), times, options)

    def lose_answer(self, api: str, *, times: int = 1, **options: Any) -> Fault:
        """Do what is asked, then cut the connection: a write that happened, and its client cannot know."""
        return self._add(_api(api), lambda dispatch, *request: dispatch.lose_answer(*request), times, options)

    def watch(self, api: str, *, times: int = 1, **options: Any) -> Fault:
        """No fault at all: requests pass, and the test can wait for them and count them."""
        return self._add(_api(api), lambda dispatch, *request: dispatch.serve(*request), times, options)

    def at_random(self, seed: int | str, **odds: float) -> Chance:
        """From now on any request may be cut, lose its answer or be delayed: `cut=0.01, lose_answer=0.01, delay=0.05`.

        Delays take up to `delay_seconds`. Faults that were made one by one go first.
        """
        self.chance = Chance(seed, RequestOdds(**odds))
        return self.chance

    def clear(self) -> None:
        """Forget those that wait, and leave nothing to chance."""
        self.waiting = ()
        self.chance = None

    def _add(self, api: Api, effect: Effect, times: int, options: dict[str, Any]) -> Fault:
        return self._insert(api, effect, times, **options)

    def _insert(
        self, api: Api, effect: Effect, times: int, *, after: int = 0, topic: str | None = None,
        client_id: str | None = None,
    ) -> Fault:  # fmt: skip
        _check_count("times", times)
        _check_count("after", after)
        _check_name("topic", topic)
        _check_name("client_id", client_id)
        if topic is not None and not _names_topics(api):
            raise ValueError(f"{api.name} requests name no topic: without topic= the fault meets them all")
        fault = Fault(api, effect, times, after, topic, client_id)
        self.waiting = (*(each for each in self.waiting if not each.is_over), fault)
        return fault


class FaultyDispatch(Dispatch):
    """A dispatch that looks for a fault before each request, as long as any waits."""

    def __init__(self, broker: Broker, faults: Faults) -> None:
        super().__init__(broker)
        self._faults = faults

    def handle(self, connection: Connection, frame: memoryview) -> None:
        if self._faults.are_none:
            super().handle(connection, frame)
            return
        found = self._find(frame)
        if found is not None:
            fault, header, request = found
            fault.effect(self, connection, frame, header, request)
        else:
            self._leave_to_chance(connection, frame)

    def _leave_to_chance(self, connection: Connection, frame: memoryview) -> None:
        chance = self._faults.chance
        match None if chance is None else chance.draw():
            case "cut":
                self.cut(connection)
            case "lose_answer":
                self.lose_answer(connection, frame)
            case "delay":
                assert chance is not None
                self.delay(chance.draw_delay_seconds(), connection, frame)
            case _:
                super().handle(connection, frame)

    def _find(self, frame: memoryview) -> tuple[Fault, RequestHeader, Request] | None:
        waiting = self._faults.waiting
        try:
            header = read_request_header(frame)
            if not header.api.serves(header.version) or all(fault.api is not header.api for fault in waiting):
                return None
            request = decode_request_body(header, frame)
        except ProtocolError:
            return None  # the real dispatch says what is wrong with it
        for fault in waiting:
            if fault.meets(header, request, self._broker.topics.name_of):
                return fault, header, request
        return None

    # What can happen

    def serve(self, connection: Connection, frame: memoryview, *_: object) -> None:
        super().handle(connection, frame)

    def refuse(
        self, code: ErrorCode, connection: Connection, frame: memoryview, header: RequestHeader, request: Request
    ) -> None:
        if header.api is apis.METADATA:
            self._refuse_metadata(code, connection, frame, header)
            return
        answer = refusal(request, header.version, code)
        slot = Slot(connection)
        connection.expect_answer(slot)
        slot.answer(encode_response(header.correlation_id, answer, header.version))

    def _refuse_metadata(
        self, code: ErrorCode, connection: Connection, frame: memoryview, header: RequestHeader
    ) -> None:
        """The brokers stay, or a client could not go on; the topics it asked for are refused."""
        from ottla.broker.dispatch import Context
        from ottla.broker.handlers import metadata
        from ottla.broker.in_steps import answer_in_steps

        request: Any = decode_request_body(header, frame)
        context = Context(connection, header, len(frame))
        connection.expect_answer(context)

        def steps() -> Steps:
            answer = yield from metadata.handle(self._broker, request, context)
            for topic in answer.topics:
                topic.error_code, topic.partitions = code, []
            return answer

        answer_in_steps(self._broker, context, steps())

    def delay(self, seconds: float, connection: Connection, frame: memoryview, *_: object) -> None:
        kept = memoryview(bytearray(frame))
        connection.hold()
        self._broker.loop.call_later(seconds, lambda: self._handle_late(connection, kept))

    def _handle_late(self, connection: Connection, frame: memoryview) -> None:
        if connection.is_open:
            super().handle(connection, frame)
            connection.release()

    def silence(self, connection: Connection, *_: object) -> None:
        connection.expect_answer(Slot(connection))

    def cut(self, connection: Connection, *_: object) -> None:
        connection.close("a fault was injected")

    def lose_answer(self, connection: Connection, frame: memoryview, *_: object) -> None:
        """The request is dealt with to its end. Its answer has no place, and ends the connection."""
        lost: list[Slot] = []

        def answered() -> None:
            if not lost or lost[0].parts is not None:
                self._broker.loop.call_last(close)  # behind what this round still writes

        def close() -> None:
            connection.close("a fault was injected")

        stand_in = cast("Connection", _LosesAnswer(connection, lost.append, answered))
        super().handle(stand_in, frame)
        connection.hold()  # no later request is answered in its place
        answered()


class _LosesAnswer:
    """Stands for a connection before a handler whose answer is to have no place on it."""

    def __init__(
        self, connection: Connection, expect_answer: Callable[[Slot], None], answered: Callable[[], None]
    ) -> None:
        self._connection = connection
        self.expect_answer = expect_answer
        self.answered = answered

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _api(name: str) -> Api:
    api = _APIS_BY_NAME.get(name.lower())
    if api is None:
        raise ValueError(f"there is no API {name!r}; they are called {', '.join(each.name for each in apis.APIS)}")
    return api


def _check_count(name: str, value: object) -> None:
    """Here, in the line of the test: in the broker's thread it would be the broker's mistake."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is a whole number, not {value!r}")


def _check_seconds(value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"a delay is a number of seconds, not {value!r}")


def _check_name(name: str, value: object) -> None:
    if not isinstance(value, str | None):
        raise TypeError(f"{name} is a str, not {value!r}")


def _names_topics(api: Api) -> bool:
    return not _TOPIC_FIELDS.isdisjoint(REQUESTS[api.key].declared)


def _topics_of(request: Any, topic_name: Callable[[bytes], str]) -> set[str]:
    """The names of the topics that a request is about, whatever it calls them."""
    names = set()
    for field in _TOPIC_FIELDS:
        for topic in getattr(request, field, None) or ():
            name = topic if isinstance(topic, str) else getattr(topic, "name", None) or getattr(topic, "topic", None)
            names.add(name or topic_name(getattr(topic, "topic_id", b"")))
    for group in getattr(request, "groups", ()):
        names |= _topics_of(group, topic_name)
    return names
