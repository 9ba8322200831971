"""ReportGrowth (30003), version 0: the controller decides on topics that grow in order. Ottla's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.broker.loop.slices import Steps
from ottla.controller.changes import Change
from ottla.controller.cluster import Cluster
from ottla.controller.growing import GrowthReports, Report, draining, fencing, is_current, lowered, opened
from ottla.controller.layout import TopicNode
from ottla.records.growth import Phase, is_growing
from ottla.wire.errors import ErrorCode
from ottla.wire.messages.report_growth import ReportGrowthRequest, ReportGrowthResponse

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.dispatch import Context

MOST_DRAINING_SECONDS = 30.0
"""After which producers that still do not know of the new partitions are refused."""


def handle(broker: Broker, request: ReportGrowthRequest, context: Context) -> Steps:
    response = ReportGrowthResponse()
    controller = broker.controller
    cluster = controller.cluster

    def decide() -> list[Change]:
        known = cluster.brokers.get(request.broker_id)
        if known is None or not known.is_alive or known.epoch != request.broker_epoch:
            response.error_code = ErrorCode.STALE_BROKER_EPOCH
            return []
        by_name: dict[str, list[Report]] = {}
        for report in _reports(cluster, request):
            if is_current(cluster, report):
                by_name.setdefault(report.name, []).append(report)
        changes: list[Change] = []
        for name, reports in by_name.items():
            changes += _decided(broker, name, reports)
        return changes

    for _, refusal in (yield from controller.decided(decide)):
        if refusal is not None:
            response.error_code = refusal.code
    return response


def _reports(cluster: Cluster, request: ReportGrowthRequest) -> Iterator[Report]:
    for topic in request.topics:
        name = cluster.names.get(topic.topic_id)
        for each in topic.partitions if name is not None else ():
            yield Report(
                name or "",
                each.partition_index,
                each.leader_epoch,
                each.is_drained,
                each.fence if each.has_fence else None,
                {fence.first: fence.fence for fence in each.lowered},
            )


def _decided(broker: Broker, name: str, reports: list[Report]) -> list[Change]:
    controller = broker.controller
    node, now = controller.cluster.topics[name], broker.loop.now()
    if not is_growing(node.growths):
        controller.growing.pop(name, None)
        return lowered(node, name, reports)
    growth = node.growths[-1]
    told = controller.growing.get(name)
    if told is None or not told.is_of(node.topic_id, growth):
        told = controller.growing[name] = GrowthReports(node.topic_id, growth, now, controller.feed.position)
    for report in reports:
        told.take(report)
    return _next_step(broker, name, node, told) or lowered(node, name, reports)


def _next_step(broker: Broker, name: str, node: TopicNode, told: GrowthReports) -> list[Change]:
    """Of a growth that has come so far; nothing if it has not."""
    controller, growth = broker.controller, told.growth
    if growth.phase is Phase.PREPARING:
        return draining(node, name) if _all_know(broker, told) else []
    if growth.phase is Phase.DRAINING:
        is_over = told.are_drained or broker.loop.now() - told.since >= MOST_DRAINING_SECONDS
        return fencing(node, name) if is_over else []
    if told.has_fences:
        return opened(controller.cluster, broker.membership.rules(), name, told.fences)
    return []


def _all_know(broker: Broker, told: GrowthReports) -> bool:
    """Whether all brokers have heard of the new partitions: they tell nobody the old number, and hold groups back."""
    controller = broker.controller
    others = [node_id for node_id in controller.cluster.live if node_id != broker.node_id]
    return controller.feed.have_all(others, told.position)
