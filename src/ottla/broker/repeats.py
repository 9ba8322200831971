"""Produce requests that repeat one another within a round of the loop, as those of busy clients do.

All that the handler looks at but the batch is the same for requests of one template: who asks for what, the partition,
the acks. That is looked at once a round, and from then on only the batch is validated and appended, by the same code as
in the handler. What is unusual in any way is left to the handler (handlers/produce.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.leaders import FIRST_PRODUCE_WITH_LEADER, hint_producer
from ottla.broker.network.connection import Slot
from ottla.controller.topic_names import INTERNAL
from ottla.log.errors import LogError
from ottla.records.validate import plain_batch
from ottla.replica.acknowledgements import NEVER
from ottla.wire.errors import ErrorCode
from ottla.wire.frames import encode_response
from ottla.wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.network.connection import Connection
    from ottla.replica.partition import Partition
    from ottla.wire.templates import Template

ANSWERED_ACKS = (-1, 1)  # 0 gets no answer, and others are refused

Token = tuple[Slot, "Template", int, int, int, int, int]
"""The place of an answer, its template, correlation id, base offset, log append time, log start offset, bytes."""


class Repeats:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._template: Template | None = None  # of the requests that were looked at in this round
        self._partition: Partition
        self._now_ms = 0
        self._is_end_awaited = False  # the end of the round

    def take(
        self, connection: Connection, template: Template, correlation_id: int, records: memoryview, size_bytes: int
    ) -> bool:
        """Whether the request is one like others before it, and has been appended."""
        broker = self._broker
        if template is not self._template and not self._begin(template):
            return False
        partition = self._partition
        log = partition.log
        if broker.quotas.are_set or log.failure is not None:
            return False
        validated = plain_batch(records, log.produce_settings, self._now_ms)
        if validated is None:
            return False
        metrics = broker.metrics
        metrics.requests["Produce"] += 1
        metrics.received_bytes += size_bytes
        connection.knows_topics = True
        slot = Slot(connection)
        connection.expect_answer(slot)
        acks = template.acks
        try:
            appended, log_append_time_ms = partition.writer.append_validated(
                validated, template.header.version, self._now_ms, acks
            )
        except LogError as refusal:
            self._refuse(slot, template, correlation_id, refusal, log.log_start_offset)
            return True
        except Exception:
            broker.report_bug(template.header)
            connection.close("the broker failed")
            return True
        offsets = appended.base_offset, log_append_time_ms, log.log_start_offset
        token = (slot, template, correlation_id, *offsets, len(records))
        due = broker.loop.now() + template.timeout_ms / 1000 if partition.machine.followers else NEVER
        partition.wait(appended.last_offset + 1, acks, self, token, due)
        return True

    def _begin(self, template: Template) -> bool:
        """Look at what requests of this template have in common; whether it is as usual."""
        broker = self._broker
        self._template = None
        if not broker.authorizer.allows_everything or template.acks not in ANSWERED_ACKS:
            return False
        partition = broker.topics.find(template.partition_key)
        if partition is None or partition.topic in INTERNAL or partition.machine.may_append(template.acks) is not None:
            return False
        self._template, self._partition, self._now_ms = template, partition, broker.clock_ms()
        if not self._is_end_awaited:
            self._is_end_awaited = True
            broker.loop.call_last(self._end_round)
        return True

    def _end_round(self) -> None:
        """Time goes on, and anything may be another way in the next round."""
        self._template = None
        self._is_end_awaited = False

    def committed(self, token: Token, failure: LogError | None) -> None:
        slot, template, correlation_id, base_offset, log_append_time_ms, log_start_offset, size_bytes = token
        if failure is not None:
            self._refuse(slot, template, correlation_id, failure, log_start_offset)
            return
        self._broker.metrics.produced_bytes += size_bytes
        slot.parts = [template.frame(correlation_id, base_offset, log_append_time_ms, log_start_offset)]
        slot.connection.answered()

    def _refuse(
        self, slot: Slot, template: Template, correlation_id: int, refusal: LogError, log_start_offset: int
    ) -> None:
        answer = PartitionProduceResponse(
            index=template.index,
            error_code=ErrorCode(refusal.code),
            base_offset=-1,
            log_start_offset=log_start_offset,
        )
        name, topic_id = template.topic
        answered = TopicProduceResponse(name=name, topic_id=topic_id, partition_responses=[answer])
        response = ProduceResponse(responses=[answered])
        if template.header.version >= FIRST_PRODUCE_WITH_LEADER:
            hint_producer(self._broker, slot.connection, response)
        slot.answer(encode_response(correlation_id, response, template.header.version))
