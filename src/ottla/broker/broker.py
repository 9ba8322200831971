"""The broker: what handlers work with, and the order in which it starts and stops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.broker.access import AllowEverything, Authorizer
from ottla.broker.address_limits import parse_address_limits
from ottla.broker.admission import Admission
from ottla.broker.background import Background
from ottla.broker.catalog import Catalog
from ottla.broker.config_layers import BrokerSettings
from ottla.broker.config_quotas import StoredQuotas
from ottla.broker.connection import Limits
from ottla.broker.dispatch import Dispatch
from ottla.broker.durability import Durability
from ottla.broker.events import Events
from ottla.broker.fetch_sessions import FetchSessions
from ottla.broker.listeners import Endpoint, advertised_endpoint, read_advertised, read_listeners
from ottla.broker.loop import Loop
from ottla.broker.metrics import CONTENT_TYPE, Metrics, exposition_steps
from ottla.broker.quotas import Quotas
from ottla.broker.server import Handle, Server
from ottla.broker.slices import Slices
from ottla.broker.system import SocketBuffers
from ottla.broker.topics import Topics
from ottla.controller.layout import BrokerNode
from ottla.controller.local_store import LocalStore
from ottla.controller.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.log.files import Files
from ottla.log.housekeeping import Housekeeping
from ottla.log.manager import LogManager
from ottla.wire.header import RequestHeader

if TYPE_CHECKING:
    from ottla.broker.dispatch import Context
    from ottla.broker.group_configs import GroupConfigs
    from ottla.broker.groups import Groups
    from ottla.broker.http import HttpServer, PageSteps
    from ottla.broker.lags import Lags
    from ottla.broker.transactions import Transactions

events = Events("ottla.broker")

STORE = "cluster.sqlite"


class Broker:
    """Everything that belongs to one broker and its one thread."""

    stored_quotas: StoredQuotas
    _housekeeping: Housekeeping

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
    ) -> None:
        """`syncs`: acknowledge only what is on the disk. `survives_power_loss`: the store of topics does.

        Without an authorizer everybody may do everything.
        """
        self.loop = loop
        self.authorizer: Authorizer = authorizer or AllowEverything()
        self.settings = settings or BrokerSettings()
        config = self.settings.config
        self.node_id = config.node_id
        self.durability = Durability(loop, waits_for_all=syncs)
        self._survives_power_loss = survives_power_loss
        self.topics = Topics()
        self.logs = LogManager(files, folder)
        self.fetch_sessions = FetchSessions(
            config.max_incremental_fetch_session_cache_slots, is_known=self.topics.is_known
        )
        self.quotas = Quotas(
            config.quota_window_num,
            config.quota_window_size_seconds * 1000,
            mutation_burst_seconds=config.controller_quota_window_num * config.controller_quota_window_size_seconds,
        )
        self.metrics = Metrics()
        self.request_slices = Slices(loop)  # what requests ask for and takes longer than a moment
        self.produce_slices = Slices(loop, takes_turns=False)  # likewise, where each holds much memory
        # What coordinators load, and what concerns many of their groups. One after the other: the first are soon ready.
        self.coordinator_slices = Slices(loop, takes_turns=False)
        self.page_slices = Slices(loop)  # what /metrics and /health tell
        self.make_dispatch: Callable[[Broker], Dispatch] = Dispatch
        self._catalog: Catalog | None = None
        self._admission = Admission(quotas=self.quotas)
        self._limit_connections()
        self.servers: list[Server] = []
        self.endpoints: dict[str, Endpoint] = {}  # where clients are told to connect, by the listener they use
        self._is_open = False
        self._background: Background | None = None
        self._pages: HttpServer | None = None
        self._groups: Groups | None = None
        self._transactions: Transactions | None = None

    def open(self) -> None:
        """Open the data: from here on everything works but what needs the network."""
        self.logs.take_folder()
        store = LocalStore(f"{self.logs.folder}/{STORE}", survives_power_loss=self._survives_power_loss)
        self._catalog = Catalog(store, self.logs, self.topics, self.settings, self.node_id, self.clock_ms)
        self._catalog.open()
        self.stored_quotas = StoredQuotas(store, self.quotas)
        if OFFSETS_TOPIC in self.topics.by_name:
            self.groups.start()
        if TRANSACTIONS_TOPIC in self.topics.by_name:
            self.transactions.start()
        self._is_open = True

    def start(self) -> None:
        """Open the data, then listen where the settings say; ConfigError if that cannot be."""
        config = self.settings.config
        listeners = read_listeners(config.listeners, config.listener_security_protocol_map)
        advertised = read_advertised(config.advertised_listeners, listeners)
        for name, reason in self.settings.idle():
            events.warning("a setting changes nothing", setting=name, reason=reason)
        self.open()
        handle = self.make_dispatch(self).handle
        for name, endpoint in listeners.items():
            server = self._listen(name, endpoint, handle)
            listened = Endpoint(endpoint.host, server.port)
            self.endpoints[name] = advertised_endpoint(listened, advertised.get(name))
        self.catalog.register(BrokerNode(dict(self.endpoints), config.broker_rack, self.clock_ms()))
        self._housekeeping = Housekeeping(
            self.logs,
            self.clock_ms,
            retention_interval_ms=config.log_retention_check_interval_ms,
            compaction_interval_ms=config.log_cleaner_backoff_ms,
            checkpoint_interval_ms=config.log_flush_offset_checkpoint_interval_ms,
            producer_interval_ms=config.producer_id_expiration_check_interval_ms,
            producer_expiration_ms=config.producer_id_expiration_ms,
            compacts=config.log_cleaner_enable,
            map_bytes=config.log_cleaner_dedupe_buffer_size,
            report_uncleanable=lambda partition, reason: events.warning(
                "a log is not compacted any more", partition="-".join(map(str, partition)), reason=reason
            ),
        )
        self._background = Background(self.loop, self._housekeeping)
        self.settings.changed = self._settings_changed

    def _settings_changed(self) -> None:
        """Tell those who were told once; who asks each time has nothing to learn."""
        config = self.settings.config
        self._limit_connections()
        self._housekeeping.compaction_interval_ms = config.log_cleaner_backoff_ms
        self._housekeeping.map_bytes = config.log_cleaner_dedupe_buffer_size
        self._housekeeping.producer_expiration_ms = config.producer_id_expiration_ms

    def _limit_connections(self) -> None:
        config, admission = self.settings.config, self._admission
        admission.max_connections = config.max_connections
        admission.max_connections_per_ip = config.max_connections_per_ip
        admission.max_creation_rate = config.max_connection_creation_rate
        overrides = config.max_connections_per_ip_overrides
        admission.limits_by_address = parse_address_limits("max.connections.per.ip.overrides", overrides)

    def _listen(self, listener: str, endpoint: Endpoint, handle: Handle) -> Server:
        config = self.settings.config
        server = Server(
            self.loop,
            endpoint.host,
            endpoint.port,
            handle,
            listener=listener,
            limits=Limits(max_frame_bytes=config.socket_request_max_bytes),
            admission=self._admission,
            max_idle_seconds=config.connections_max_idle_ms / 1000,
            backlog=config.socket_listen_backlog_size,
            buffers=SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes),
        )
        self.servers.append(server)
        return server

    @property
    def address(self) -> Endpoint:
        """Where clients of the first listener are told to connect."""
        return next(iter(self.endpoints.values()))

    def endpoint_for(self, context: Context) -> Endpoint:
        """Where the client that asks is told to connect."""
        return self.endpoints[context.listener]

    def serve_pages(self, host: str, port: int) -> int:
        """Serve /metrics and /health too, on a port of their own; which one it is."""
        from ottla.broker.http import HttpServer

        pages = {"/metrics": self._metrics_page, "/health": self._health_page}
        self._pages = HttpServer(self.page_slices, host, port, pages)
        return self._pages.port

    def _metrics_page(self) -> PageSteps:
        text = yield from exposition_steps(self)
        return 200, CONTENT_TYPE, text

    def _health_page(self) -> PageSteps:
        yield None
        failed = [f"{topic}-{index}" for (topic, index), log in self.logs.logs.items() if log.failure is not None]
        if failed:
            return 503, "text/plain", f"the disk failed for {', '.join(failed)}\n".encode()
        return 200, "text/plain", b"ok\n"

    def stop(self) -> None:
        """Let go of the clients, then close the data in good order.

        After a start that failed, only what was opened as a whole is closed as if it were sound. The rest stays as it
        was found, and so does the data of another broker that has the folder.
        """
        self._stop_serving()
        self.loop.finish_jobs()  # a flush under way would write to the same files
        if self._is_open:
            self._is_open = False
            self.logs.close(self.clock_ms())
        else:
            self.logs.abandon()

    def abandon(self) -> None:
        """End as a crash would: nothing more is written."""
        self._stop_serving()
        self.logs.abandon()

    def _stop_serving(self) -> None:
        if self._background is not None:
            self._background.stop()
        if self._pages is not None:
            self._pages.close()
        self.page_slices.cancel_all()
        if self._transactions is not None:
            self._transactions.stop()
        if self._groups is not None:
            self._groups.stop()
        for server in self.servers:
            server.close()
        if self._catalog is not None:
            self._catalog.close()

    @property
    def groups(self) -> Groups:
        """The coordinator of groups; there is none before somebody asks."""
        if self._groups is None:
            from ottla.broker.groups import Groups

            self._groups = Groups(self)
        return self._groups

    @property
    def has_groups(self) -> bool:
        """Whether somebody has asked for a group."""
        return self._groups is not None

    @functools.cached_property
    def group_configs(self) -> GroupConfigs:
        from ottla.broker.group_configs import GroupConfigs

        return GroupConfigs(self.catalog.store, self.settings)

    @functools.cached_property
    def lags(self) -> Lags:
        from ottla.broker.lags import Lags

        return Lags(self)

    @property
    def transactions(self) -> Transactions:
        """The coordinator of transactions, likewise."""
        if self._transactions is None:
            from ottla.broker.transactions import Transactions

            self._transactions = Transactions(self)
        return self._transactions

    @property
    def catalog(self) -> Catalog:
        """What brings topics about, once the data is open."""
        assert self._catalog is not None
        return self._catalog

    @property
    def cluster_id(self) -> str:
        return self.catalog.cluster_id

    def clock_ms(self) -> int:
        return self.loop.system.clock_ms()

    def throttle(self, kind: str, context: Context, amount: float) -> int:
        """Count what a client used, and hold it back if that was too much; for how many milliseconds."""
        if not self.quotas.are_set:
            return 0
        return self.hold_back(kind, context, self.quotas.charge(kind, context.client_id, amount, self.clock_ms()))

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
