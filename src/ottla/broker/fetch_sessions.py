"""Fetch sessions (KIP-227): what each follower of many partitions asked for, so that it need not say it again.

A session remembers its partitions and what was last told of each. Requests name only what changed, and answers only
what is new.
"""

from __future__ import annotations

import itertools
import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.controller.topic_names import MOST_CHARACTERS
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.fetch import FetchPartition, FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
LARGEST_EPOCH = 2**31 - 1
MOST_UNKNOWN = 1000  # partitions that are not there, in one session
FIRST_VERSION_WITH_TOPIC_IDS = 13

Key = tuple[str | bytes, int]  # a topic's name or id, and the partition


def is_name_kept(key: Key) -> bool:
    """Whether a topic can have that name: others are answered, and not remembered, for they may be very long."""
    return len(key[0]) <= MOST_CHARACTERS


class Wanted:
    """One partition of a session or of a request."""

    __slots__ = ("asked", "told", "was_known")

    def __init__(self, asked: FetchPartition) -> None:
        self.asked = asked
        self.told: tuple[int, int, int] | None = None  # high watermark, last stable and log start offset
        self.was_known = False  # to this broker, at some time


class Session:
    __slots__ = ("epoch", "session_id", "used_ms", "uses_ids", "wanted")

    def __init__(self, session_id: int, uses_ids: bool, wanted: OrderedDict[Key, Wanted], now_ms: int) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.wanted = wanted
        self.epoch = 1
        self.used_ms = now_ms


class Fetching(NamedTuple):
    """What one request is to be answered with."""

    wanted: OrderedDict[Key, Wanted]
    session_id: int
    is_incremental: bool
    error: ErrorCode = ErrorCode.NONE


class FetchSessions:
    def __init__(
        self, slots: int = 1000, eviction_ms: int = 120_000, is_known: Callable[[Key], bool] = lambda _key: True
    ) -> None:
        """`is_known`: whether a partition is there. A session may keep only a few others."""
        self._is_known = is_known
        self._slots = slots
        self._eviction_ms = eviction_ms
        self._sessions: OrderedDict[int, Session] = OrderedDict()  # the least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, request: FetchRequest, version: int, now_ms: int) -> Fetching:
        """What the request asks for, alone or with what its session remembers."""
        session_id, epoch = request.session_id, request.session_epoch
        uses_ids = version >= FIRST_VERSION_WITH_TOPIC_IDS
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)
            wanted = _asked(request, uses_ids)
            if epoch == FINAL_EPOCH:
                return Fetching(wanted, NO_SESSION, False)
            session_id = self._open(wanted, uses_ids, now_ms) if self._may_be_kept(wanted) else NO_SESSION
            return Fetching(wanted, session_id, False)
        session = self._sessions.get(session_id)
        if session is None:
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_ids != uses_ids:
            return _refused(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if epoch != session.epoch:
            return _refused(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return self._go_on(session, request, now_ms)

    def _go_on(self, session: Session, request: FetchRequest, now_ms: int) -> Fetching:
        session.epoch = 1 if session.epoch == LARGEST_EPOCH else session.epoch + 1
        session.used_ms = now_ms
        self._sessions.move_to_end(session.session_id)
        asked = _asked(request, session.uses_ids)
        if not self._may_be_kept(asked, session.wanted):
            del self._sessions[session.session_id]
            return _refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)  # and the client names all of them again
        for key, wanted in asked.items():
            known = session.wanted.get(key)
            if known is None:
                session.wanted[key] = wanted
            else:
                known.asked = wanted.asked
        for forgotten in request.forgotten_topics_data:
            topic: str | bytes = forgotten.topic_id if session.uses_ids else forgotten.topic
            for index in forgotten.partitions:
                session.wanted.pop((topic, index), None)
        if not session.wanted:
            del self._sessions[session.session_id]
            return Fetching(session.wanted, NO_SESSION, False)
        return Fetching(session.wanted, session.session_id, True)

    def _may_be_kept(self, asked: Mapping[Key, Wanted], before: Mapping[Key, Wanted] = {}) -> bool:
        """Whether a session is not made of names that somebody made up. Without one, requests name all they want."""
        if not all(map(is_name_kept, asked)):
            return False
        if len(asked) + len(before) <= MOST_UNKNOWN:
            return True
        return sum(not self._is_known(key) for key in (*before, *asked)) <= MOST_UNKNOWN

    def _open(self, wanted: OrderedDict[Key, Wanted], uses_ids: bool, now_ms: int) -> int:
        """Remember a new session, if there is room for one."""
        if not self._slots or (len(self._sessions) >= self._slots and not self._evict(len(wanted), now_ms)):
            return NO_SESSION
        session_id = next(
            candidate
            for candidate in (random.randrange(1, 2**31) for _ in itertools.count())
            if candidate not in self._sessions
        )
        self._sessions[session_id] = Session(session_id, uses_ids, wanted, now_ms)
        return session_id

    def _evict(self, size: int, now_ms: int) -> bool:
        """Make room: the longest unused session goes if its time is over, or a smaller one for a larger."""
        oldest = next(iter(self._sessions.values()))
        smallest = min(self._sessions.values(), key=lambda session: len(session.wanted))
        if now_ms - oldest.used_ms >= self._eviction_ms:
            del self._sessions[oldest.session_id]
        elif len(smallest.wanted) < size and now_ms - smallest.used_ms >= self._eviction_ms:
            del self._sessions[smallest.session_id]
        else:
            return False
        return True


def _asked(request: FetchRequest, uses_ids: bool) -> OrderedDict[Key, Wanted]:
    return OrderedDict(
        ((topic.topic_id if uses_ids else topic.topic, partition.partition), Wanted(partition))
        for topic in request.topics
        for partition in topic.partitions
    )


def _refused(error: ErrorCode) -> Fetching:
    return Fetching(OrderedDict(), NO_SESSION, False, error)
