"""Control records: the markers that end transactions in a partition. Key and value start with their version.

`type` is 0 to abort and 1 to commit; Kafka's quorum uses more. Later versions only add: read one from the
future with `newer_as_highest`.
"""

from __future__ import annotations

from ottla.wire.schema import Message
from ottla.wire.types import Int16, Int32


class ControlRecordTypeSchema(Message, versions="0"):
    type: Int16


class EndTxnMarker(Message, versions="0"):
    coordinator_epoch: Int32


ABORT = 0
COMMIT = 1
