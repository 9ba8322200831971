"""The broker: what handlers work with, and the order in which it starts and stops."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from ottla.broker.access.authorizer import AllowEverything, Authorizer
from ottla.broker.brokers import Brokers
from ottla.broker.config.layers import BrokerSettings
from ottla.broker.controller.controller import Controller, NotController
from ottla.broker.controller.membership import Membership
from ottla.broker.controller.topics import TopicRequests
from ottla.broker.dispatch import Dispatch
from ottla.broker.events import Events
from ottla.broker.failed_disks import FailedDisks
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.growing import Growing
from ottla.broker.housekeeping import BrokerHousekeeping
from ottla.broker.joining import make_membership
from ottla.broker.loop.aging import AgingClock
from ottla.broker.loop.loop import Loop
from ottla.broker.loop.slices import Slices
from ottla.broker.metrics import Metrics
from ottla.broker.network.frontend import Frontend
from ottla.broker.network.listeners import Endpoint
from ottla.broker.network.peers import Peers
from ottla.broker.pages import Pages
from ottla.broker.quotas.quotas import FREE_TURN, Quotas, Turn
from ottla.broker.replica_moves import ReplicaMoves
from ottla.broker.replication.replication import Replication
from ottla.broker.replication.serving import ReplicaSessions
from ottla.broker.roles import Roles
from ottla.broker.rot_reports import RotReports
from ottla.broker.rounds import Rounds
from ottla.broker.stores import STORE, OpenStore, own_store
from ottla.broker.topics import Topics
from ottla.broker.woken import Woken
from ottla.controller.cluster import Cluster
from ottla.controller.reserve import SUFFIX as RESERVE_SUFFIX
from ottla.controller.reserve import Reserve
from ottla.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.log.files import Files
from ottla.log.folders import LogFolders
from ottla.wire.header import RequestHeader
from ottla.wire.messages.leave_cluster import LeaveClusterRequest

if TYPE_CHECKING:
    from ottla.broker.config.groups import GroupConfigs
    from ottla.broker.coordinators.groups import Groups
    from ottla.broker.coordinators.lags import Lags
    from ottla.broker.coordinators.transactions import Transactions
    from ottla.broker.dispatch import Context
    from ottla.replica.partition import Partition

events = Events("ottla.broker")

FEW_SEGMENTS = 500  # that are not on the disk
HAND_OVER_SECONDS = 5.0  # for which a broker that stops waits until others lead


class Broker:
    """Everything that belongs to one broker and its one thread."""

    membership: Membership  # this broker in its cluster

    def __init__(
        self,
        loop: Loop,
        files: Files,
        folder: str,
        settings: BrokerSettings | None = None,
        *,
        syncs: bool = False,
        survives_power_loss: bool = True,
        authorizer: Authorizer | None = None,
        open_store: OpenStore | None = None,
        boot_id: str | None = None,
        more_folders: Sequence[str] = (),
        make_dispatch: Callable[[Broker], Dispatch] = Dispatch,
    ) -> None:
        """`syncs`: acknowledge only what is on the disk. `survives_power_loss`: the store of topics does.

        Without an authorizer everybody may do everything. `open_store`: in place of the file in the data folder.
        `boot_id`: what tells this run of the machine from others; without it, what the kernel says. `more_folders`:
        partitions lie there, too. `make_dispatch`: what answers requests, for tests that put something before it.
        """
        self.loop = loop
        self.clock_ms = loop.system.clock_ms
        self.aging_ms = AgingClock(self.clock_ms, loop.steady_ms)
        self.authorizer: Authorizer = authorizer or AllowEverything()
        self.settings = settings or BrokerSettings()
        config = self.settings.config
        self.node_id = config.node_id
        self.roles = Roles()
        self.quotas = Quotas(
            config.quota_window_num,
            config.quota_window_size_seconds * 1000,
            mutation_burst_seconds=config.controller_quota_window_num * config.controller_quota_window_size_seconds,
        )
        self.frontend = Frontend(loop, self.settings, self.quotas)
        self.brokers = Brokers(lambda: self.cluster, self.frontend, self.settings)
        self.peers = Peers(loop, f"broker-{self.node_id}", self.brokers.address_of)
        self.replication = Replication(loop, self.settings, self.node_id, self.peers, lambda: self.membership)
        self.roles.watch(self.replication.role_changed)
        self.rounds = Rounds(
            loop,
            waits_for_disk=syncs,
            roles=self.roles,
            propose=self.replication.propose,
            is_cut_off_from=self._is_cut_off_from,
            clock_ms=lambda: self.clock_ms(),
        )
        self.roles.watch(self._role_changed)
        self._shares_store = open_store is not None  # or it lies with the data, and is as old as that
        self._open_store = open_store or own_store(folder, survives_power_loss=survives_power_loss)
        self.topics = Topics(self.rounds)
        self.failed_disks = FailedDisks(self)
        reserve = Reserve(f"{folder}/{STORE}{RESERVE_SUFFIX}")
        self.logs = LogFolders(files, [folder, *more_folders], self.failed_disks.failed, reserve.release)
        self.halted: str | None = None  # why the broker cannot go on
        self.replica_moves = ReplicaMoves(self)
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, is_known=self.topics.is_known
        )
        self.replica_sessions = ReplicaSessions(self)
        self.rot_reports = RotReports()
        self.metrics = Metrics()
        self.woken = Woken(loop)
        self.request_slices = Slices(loop)  # what requests ask for and takes longer than a moment
        self.produce_slices = Slices(loop, takes_turns=False)  # likewise, where each holds much memory
        # What coordinators load. One after the other: the first are soon ready.
        self.loading_slices = Slices(loop, takes_turns=False)
        self.coordinator_slices = Slices(loop)  # what concerns many of their groups, or very many members
        self._change_slices = Slices(loop, takes_turns=False)  # what the cluster has decided, one after the other
        self.pages = Pages(self)
        self._make_dispatch = make_dispatch
        self.topic_requests = TopicRequests(lambda: self.controller, self.settings)
        self._is_member = False  # there is a membership
        self._boot_id = boot_id
        self.growing = Growing(self)
        self._is_open = False
        self._housekeeping: BrokerHousekeeping | None = None
        self._groups: Groups | None = None
        self._transactions: Transactions | None = None

    def open(self) -> None:
        """Open the data: from here on everything works but what needs the network."""
        self._join()
        self.loop.run_until(lambda: self.has_joined)
        self._open_coordinators()

    def _join(self) -> None:
        self.logs.take_folder()
        store = self._open_store(self.loop)
        loss = functools.partial(self.logs.loss, self._boot_id)
        note = self.logs.note_registration if self._shares_store else lambda _epoch: None
        self.membership = make_membership(self, store, self._change_slices, self._brokers_changed, loss, note)
        self._is_member = True
        self.membership.start()

    @property
    def has_joined(self) -> bool:
        """Whether this broker is one of the cluster, or knows that it cannot be.

        Then what a crash left in the cache is on the disk, too, where that is asked for: clients may be told of it.
        """
        return (self.membership.is_up and self.rounds.is_at_rest) or self.membership.failure is not None

    def _open_coordinators(self) -> None:
        if self.membership.failure is not None:
            raise self.membership.failure
        self.logs.note_boot(self._boot_id)  # not before the cluster knows of it
        if OFFSETS_TOPIC in self.topics.by_name:
            self.groups.start()
        if TRANSACTIONS_TOPIC in self.topics.by_name:
            self.transactions.start()
        self._is_open = True

    def _brokers_changed(self) -> None:
        self.peers.brokers_changed()
        if self._is_open:
            self.failed_disks.look()

    def halt(self, reason: str) -> None:
        """End as soon as whoever runs the loop can: nothing can be kept any more, and nothing is handed over."""
        if self.halted is None:
            events.warning("the broker stops", reason=reason)
            self.halted = reason
            self.loop.stop()

    def _role_changed(self, partition: Partition) -> None:
        """Coordinators follow the leaders of their partitions; at the start they are loaded when all is open."""
        if self._is_open and partition.topic == OFFSETS_TOPIC:
            self.groups.role_changed(partition)
        elif self._is_open and partition.topic == TRANSACTIONS_TOPIC:
            self.transactions.role_changed(partition)

    def _is_cut_off_from(self, replicas: Collection[int]) -> bool:
        """It knows of no controller, or one of these has not asked for as long as it takes to replace a leader."""
        config = self.settings.config
        patience_ms = max(config.replica_fetch_wait_max_ms, config.broker_session_timeout_ms // 2)
        return self.membership.controller_id < 0 or not self.replica_sessions.have_asked(replicas, patience_ms / 1000)

    def start(self) -> None:
        """Open the data, then listen where the settings say; ConfigError if that cannot be."""
        self.begin()
        self.loop.run_until(lambda: self.has_joined)
        self.serve()

    def begin(self) -> None:
        """The first half of `start`: when `has_joined`, `serve` is the second."""
        self.frontend.read_settings()
        for name, reason in self.settings.idle():
            events.warning("a setting changes nothing", setting=name, reason=reason)
        self.logs.take_folder()
        self.frontend.bind(self._make_dispatch(self).handle)
        self._join()

    def serve(self) -> None:
        """The second half of `start`."""
        self._open_coordinators()
        self.frontend.begin()
        self._housekeeping = BrokerHousekeeping(self)
        self.settings.watch(self.frontend.limit_connections)
        self.failed_disks.look()
        self.replica_moves.resume()

    @property
    def address(self) -> Endpoint:
        """Where clients of the first listener are told to connect."""
        return self.frontend.address

    def stop(self) -> None:
        """Let go of the clients, then close the data in good order.

        After a start that failed, only what was opened as a whole is closed as if it were sound. The rest stays as it
        was found, and so does the data of another broker that has the folder.
        """
        ended: list[None] = []
        self.hand_over(lambda: ended.append(None))
        self.loop.run_until(lambda: bool(ended))
        self.close()

    def close(self) -> None:
        """The second half of `stop`, when `hand_over` has come to its end."""
        self._stop_serving()
        if self._is_open:
            self.loop.run_until(lambda: self.membership.is_idle)  # what is in the store becomes true
        self._close_store()
        self.loop.finish_jobs()  # a flush under way would write to the same files
        if self._is_open:
            self._is_open = False
            segments = sum(log.flusher.unflushed_segments for log in self.logs.logs.values())
            if segments > FEW_SEGMENTS:  # which takes a moment
                events.info("the broker stops, and brings its logs to the disk", segments=segments)
            self.logs.close(self.clock_ms())
        else:
            self.logs.abandon()

    def hand_over(self, done: Callable[[], None]) -> None:
        """Have others lead what this broker leads, and go on serving meanwhile; but not for long."""
        is_asked = self._is_open and self.settings.config.controlled_shutdown_enable
        if not is_asked or self.cluster.live in ([], [self.node_id]):
            done()
            return

        def answered(_answer: object) -> None:
            if timer.callback is not None:
                timer.cancel()
                done()

        timer = self.loop.call_later(HAND_OVER_SECONDS, done)
        request = LeaveClusterRequest(broker_id=self.node_id, broker_epoch=self.membership.broker_epoch)
        self.membership.ask_controller(request, 0, answered)

    def abandon(self) -> None:
        """End as a crash would: nothing more is written."""
        self._stop_serving()
        if self._is_member:
            self.membership.store.abandon()
        self.logs.abandon()

    def _stop_serving(self) -> None:
        self.failed_disks.stop()
        self.replica_moves.stop()
        self.growing.stop()
        if self._housekeeping is not None:
            self._housekeeping.stop()
        self.pages.close()
        if self._transactions is not None:
            self._transactions.stop()
        if self._groups is not None:
            self._groups.stop()
        self.replication.stop()
        self.rounds.stop()
        self.peers.close()
        self.frontend.close()
        if self._is_member:
            self.membership.stop()

    def _close_store(self) -> None:
        if self._is_member:
            self.membership.store.close()

    def crash(self) -> None:
        """End as a process that is killed: what is under way stays as it is, nobody is told anything."""
        if self._is_member:
            self.membership.stop()
            self.membership.store.abandon()
        self.logs.abandon()

    @property
    def groups(self) -> Groups:
        """The coordinator of groups; there is none before somebody asks."""
        if self._groups is None:
            from ottla.broker.coordinators.groups import Groups

            self._groups = Groups(self)
        return self._groups

    @property
    def has_groups(self) -> bool:
        """Whether somebody has asked for a group."""
        return self._groups is not None

    @functools.cached_property
    def group_configs(self) -> GroupConfigs:
        from ottla.broker.config.groups import GroupConfigs

        return GroupConfigs(lambda: self.cluster, self.settings)

    @functools.cached_property
    def lags(self) -> Lags:
        from ottla.broker.coordinators.lags import Lags

        return Lags(self)

    @property
    def transactions(self) -> Transactions:
        """The coordinator of transactions, likewise."""
        if self._transactions is None:
            from ottla.broker.coordinators.transactions import Transactions

            self._transactions = Transactions(self)
        return self._transactions

    @property
    def controller(self) -> Controller:
        """Who decides for the cluster; NotController where that is another broker."""
        controller = self.membership.controller
        if controller is None:
            raise NotController
        return controller

    @property
    def cluster(self) -> Cluster:
        """As this broker knows it."""
        return self.membership.cluster

    @property
    def cluster_id(self) -> str:
        return self.cluster.cluster_id

    def steady_ms(self) -> int:
        """Milliseconds by a clock that nobody sets, to measure how long something takes."""
        return self.loop.steady_ms()

    def throttle(self, kind: str, context: Context, amount: float) -> int:
        """Count what a client used, and hold it back if that was too much; for how many milliseconds."""
        if not self.quotas.are_set:
            return 0
        return self.hold_back(kind, context, self.quotas.charge(kind, context.client_id, amount, self.steady_ms()))

    def take_turn(self, kind: str, context: Context, amount: float) -> Turn:
        """Whether a client gets an amount now, of what several may share; it is held back as its quota asks for."""
        if not self.quotas.are_set:
            return FREE_TURN
        turn = self.quotas.take_turn(kind, context.client_id, id(context.connection), amount, self.steady_ms())
        self.hold_back(kind, context, turn.throttle_ms)
        return turn

    def hold_back(self, kind: str, context: Context, throttle_ms: int) -> int:
        """Read nothing from a client for so long, because of its quota."""
        if throttle_ms:
            self.metrics.throttled_ms[kind] += throttle_ms
            context.connection.mute(throttle_ms / 1000)
        return throttle_ms

    def report_bug(self, header: RequestHeader) -> None:
        """A handler failed in a way nobody thought of: say all that is known, once."""
        self.metrics.failures += 1
        events.failure("a request failed", api=header.api.name, version=header.version, client_id=header.client_id)
