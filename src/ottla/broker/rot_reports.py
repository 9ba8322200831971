"""What is told of bytes on the disk that have changed there, when somebody comes to them: each time another place."""

from __future__ import annotations

from collections import OrderedDict

from ottla.broker.events import Events
from ottla.log.errors import CorruptLog
from ottla.wire.errors import ApiError

events = Events("ottla.broker")

MOST_REMEMBERED = 1000


class RotReports:
    def __init__(self) -> None:
        self._told: OrderedDict[str, None] = OrderedDict()

    def look(self, partition: str, refusal: ApiError) -> None:
        """Tell the operator, if that is why somebody was refused."""
        reason = str(refusal)
        if isinstance(refusal, CorruptLog) and reason not in self._told:
            events.warning("a batch is rotten, and is refused to who reads it", partition=partition, reason=reason)
            self._told[reason] = None
            if len(self._told) > MOST_REMEMBERED:
                self._told.popitem(last=False)
