"""Makes a broker's membership in its cluster, from the broker's parts and settings."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from ottla.broker.config.layers import BrokerSettings
from ottla.broker.controller.applier import Applier
from ottla.broker.controller.balance import BalanceSettings
from ottla.broker.controller.forwarding import ask
from ottla.broker.controller.membership import Identity, Membership
from ottla.controller.leaders import Settings as ElectionSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.broker.broker import Broker
    from ottla.broker.loop.slices import Slices
    from ottla.controller.store import Store
    from ottla.log.loss import Loss


def make_membership(
    broker: Broker,
    store: Store,
    change_slices: Slices,
    brokers_changed: Callable[[], None],
    loss: Callable[[int | None], Loss],
    note_registration: Callable[[int], None],
) -> Membership:
    """`loss`: what the data of this broker may lack; `note_registration`: has the data know in which it is used."""
    settings = broker.settings
    applier = Applier(
        change_slices,
        broker.logs,
        broker.topics,
        settings,
        broker.quotas,
        broker.node_id,
        broker.clock_ms,
        broker.steady_ms,
        brokers_changed,
    )
    return Membership(
        broker.loop,
        store,
        applier,
        Identity(
            broker.node_id,
            lambda: broker.brokers.own_node(broker.clock_ms()),
            broker.brokers.inter_broker_listener,
            loss,
            note_registration,
        ),
        first_broker_config=lambda: _first_broker_config(settings),
        settings=lambda: _election_settings(settings),
        balance_settings=lambda: _balance_settings(settings),
        session_seconds=settings.config.broker_session_timeout_ms / 1000,
        ask=functools.partial(ask, broker),
        halt=broker.halt,
    )


def _first_broker_config(settings: BrokerSettings) -> dict[str, str]:
    return {"min.insync.replicas": str(settings.topic_defaults.topic({}).min_insync_replicas)}


def _election_settings(settings: BrokerSettings) -> ElectionSettings:
    defaults = settings.topic_defaults.topic({})
    return ElectionSettings(defaults.min_insync_replicas, defaults.unclean_leader_election_enable)


def _balance_settings(settings: BrokerSettings) -> BalanceSettings:
    config = settings.config
    return BalanceSettings(config.auto_leader_rebalance_enable, config.leader_imbalance_check_interval_seconds)
