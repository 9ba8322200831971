"""What happens to a request on its way: nothing, by a rule that a test made, or by chance.

    world.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=2)
    world.faults.lose_answer("EndTxn", after=1)
    world.faults.at_random(Odds(cut=0.01, lose_answer=0.02, error=0.02))

A rule waits for requests of one API ("*": any), lets `after` of them pass, meets the next `times`, and is over. `when`
is asked about each request: `when=lambda request: request.committed`. Rules come before chance.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

from ottla.wire import apis
from ottla.wire.apis import Api
from ottla.wire.errors import ErrorCode
from ottla.wire.header import RequestHeader
from ottla.wire.schema import Request

ANY_API = "*"
_APIS_BY_NAME = {api.name.lower(): api for api in apis.APIS}


class FaultKind(enum.Enum):
    PASS = "passes"
    ERROR = "is refused, and nothing is done"
    ERROR_AFTER = "is done, and answered with an error"
    CUT = "is cut off before it arrives"
    CUT_REQUEST = "arrives in part, and the connection is cut"
    CUT_ANSWER = "is done, its answer arrives in part, and the connection is cut"
    LOSE_ANSWER = "is done, and the connection is cut before the answer"
    SWALLOW_ANSWER = "is done, and nothing comes over the connection any more (half open)"
    SILENCE = "is never done nor answered"
    DELAY = "arrives late, and all behind it"
    DELAY_ANSWER = "is answered late, and all behind it"
    CRASH = "is done, and the broker crashes before the answer leaves it"
    ALTER = "is done, and answered with something else"
    GARBLE = "is done, and bytes of the answer are others, or missing"


class RequestFault(NamedTuple):
    """What happens to one request."""

    kind: FaultKind = FaultKind.PASS
    code: int = 0
    seconds: float = 0.0
    change: Callable[[Any], object] | None = None
    """What is done to the answer."""


PASSES = RequestFault()


class Odds(NamedTuple):
    """How likely each is, for each request. Errors are drawn from those that a broker gives in trouble that passes."""

    error: float = 0.0
    error_after: float = 0.0
    cut: float = 0.0
    cut_request: float = 0.0
    cut_answer: float = 0.0
    lose_answer: float = 0.0
    swallow_answer: float = 0.0
    silence: float = 0.0
    delay: float = 0.0
    delay_answer: float = 0.0
    crash: float = 0.0
    longest_delay_seconds: float = 2.0


_OF_LEADERS = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)
_OF_COORDINATORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_CHANCE_CODES: dict[Api, tuple[ErrorCode, ...]] = {
    apis.PRODUCE: (*_OF_LEADERS, ErrorCode.NOT_ENOUGH_REPLICAS),
    apis.FETCH: (*_OF_LEADERS, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
    apis.LIST_OFFSETS: _OF_LEADERS,
    apis.METADATA: (ErrorCode.LEADER_NOT_AVAILABLE,),
    apis.FIND_COORDINATOR: (ErrorCode.COORDINATOR_NOT_AVAILABLE,),
    apis.INIT_PRODUCER_ID: (*_OF_COORDINATORS, ErrorCode.CONCURRENT_TRANSACTIONS),
    apis.ADD_PARTITIONS_TO_TXN: (*_OF_COORDINATORS, ErrorCode.CONCURRENT_TRANSACTIONS),
    apis.ADD_OFFSETS_TO_TXN: (*_OF_COORDINATORS, ErrorCode.CONCURRENT_TRANSACTIONS),
    apis.END_TXN: (*_OF_COORDINATORS, ErrorCode.CONCURRENT_TRANSACTIONS),
    apis.TXN_OFFSET_COMMIT: (*_OF_COORDINATORS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    apis.OFFSET_COMMIT: _OF_COORDINATORS,
    apis.OFFSET_FETCH: (*_OF_COORDINATORS, ErrorCode.UNSTABLE_OFFSET_COMMIT),
    apis.JOIN_GROUP: _OF_COORDINATORS,
    apis.SYNC_GROUP: _OF_COORDINATORS,
    apis.HEARTBEAT: _OF_COORDINATORS,
    apis.LEAVE_GROUP: _OF_COORDINATORS,
    apis.CONSUMER_GROUP_HEARTBEAT: _OF_COORDINATORS,
}
# What Produce may say although it has written; a coordinator that moved while it worked.
_CHANCE_CODES_AFTER = _CHANCE_CODES | {
    apis.PRODUCE: (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
}


class Rule:
    """`count` is how often it was met."""

    def __init__(
        self, api: Api | None, fault: RequestFault, times: int, after: int, when: Callable[[Any], bool] | None
    ) -> None:
        self.api = api
        self.fault = fault
        self.count = 0
        self._times = times
        self._after = after
        self._when = when

    @property
    def is_over(self) -> bool:
        return self.count >= self._times

    def cancel(self) -> None:
        self._times = 0

    def meets(self, header: RequestHeader, request: Request) -> bool:
        if self.is_over or (self.api is not None and header.api is not self.api):
            return False
        if self._when is not None and not self._when(request):
            return False
        if self._after:
            self._after -= 1
            return False
        self.count += 1
        return True


class WorldFaults:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._rules: list[Rule] = []
        self._odds: Odds | None = None

    def add(
        self,
        api: str,
        fault: RequestFault,
        *,
        times: int = 1,
        after: int = 0,
        when: Callable[[Any], bool] | None = None,
    ) -> Rule:
        found = None if api == ANY_API else _APIS_BY_NAME.get(api.lower())
        if found is None and api != ANY_API:
            raise ValueError(f"there is no API {api!r}")
        rule = Rule(found, fault, times, after, when)
        self._rules.append(rule)
        return rule

    def error(self, api: str, code: str | int, **options: Any) -> Rule:
        """Any code, for any API."""
        return self.add(api, RequestFault(FaultKind.ERROR, _code(code)), **options)

    def error_after(self, api: str, code: str | int, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.ERROR_AFTER, _code(code)), **options)

    def cut(self, api: str, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.CUT), **options)

    def cut_request(self, api: str, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.CUT_REQUEST), **options)

    def cut_answer(self, api: str, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.CUT_ANSWER), **options)

    def lose_answer(self, api: str, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.LOSE_ANSWER), **options)

    def swallow_answer(self, api: str, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.SWALLOW_ANSWER), **options)

    def silence(self, api: str, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.SILENCE), **options)

    def delay(self, api: str, seconds: float, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.DELAY, seconds=seconds), **options)

    def delay_answer(self, api: str, seconds: float, **options: Any) -> Rule:
        return self.add(api, RequestFault(FaultKind.DELAY_ANSWER, seconds=seconds), **options)

    def crash(self, api: str, *, down_seconds: float = 1.0, **options: Any) -> Rule:
        """The broker is back after `down_seconds`."""
        return self.add(api, RequestFault(FaultKind.CRASH, seconds=down_seconds), **options)

    def alter(self, api: str, change: Callable[[Any], object], **options: Any) -> Rule:
        """A broker that says something else: `change` is called with the answer, and may do with it what it likes."""
        return self.add(api, RequestFault(FaultKind.ALTER, change=change), **options)

    def garble(self, api: str, **options: Any) -> Rule:
        """What arrives is not what was sent: bytes behind the correlation id are others, or missing."""
        return self.add(api, RequestFault(FaultKind.GARBLE), **options)

    def watch(self, api: str, *, times: int = 1 << 30, **options: Any) -> Rule:
        """No fault: requests pass, and are counted."""
        return self.add(api, PASSES, times=times, **options)

    def at_random(self, odds: Odds) -> None:
        self._odds = odds

    def clear(self) -> None:
        """From now on nothing happens to anybody."""
        self._rules.clear()
        self._odds = None

    def decide(self, header: RequestHeader, request: Request) -> RequestFault:
        for rule in self._rules:
            if rule.meets(header, request) and rule.fault is not PASSES:
                return rule.fault
        return PASSES if self._odds is None else self._draw(header.api, self._odds)

    def _draw(self, api: Api, odds: Odds) -> RequestFault:
        drawn = self._random.random()
        for kind in _BY_CHANCE:
            drawn -= getattr(odds, kind.name.lower())
            if drawn < 0:
                return self._drawn(kind, api, odds)
        return PASSES

    def _drawn(self, kind: FaultKind, api: Api, odds: Odds) -> RequestFault:
        seconds = self._random.uniform(0, odds.longest_delay_seconds)
        if kind not in (FaultKind.ERROR, FaultKind.ERROR_AFTER):
            return RequestFault(kind, seconds=seconds)
        codes = (_CHANCE_CODES if kind is FaultKind.ERROR else _CHANCE_CODES_AFTER).get(api)
        return RequestFault(kind, self._random.choice(codes)) if codes else PASSES


_BY_CHANCE = tuple(kind for kind in FaultKind if kind.name.lower() in Odds._fields)


def _code(code: str | int) -> int:
    return ErrorCode[code.upper()] if isinstance(code, str) else code
