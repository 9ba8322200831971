"""Where clients come in: the listeners, the limits on connections, and the addresses that clients are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.loop.system import SocketBuffers
from ottla.broker.network.address_limits import parse_address_limits
from ottla.broker.network.admission import Admission
from ottla.broker.network.limits import Limits
from ottla.broker.network.listeners import (
    Endpoint,
    advertised_endpoint,
    check_inter_broker,
    read_advertised,
    read_listeners,
)
from ottla.broker.network.server import Handle, Memory, Server
from ottla.config import ConfigError

if TYPE_CHECKING:
    from ottla.broker.config.layers import BrokerSettings
    from ottla.broker.loop.loop import Loop
    from ottla.broker.network.connection import Connection
    from ottla.broker.quotas.quotas import Quotas


class Frontend:
    def __init__(self, loop: Loop, settings: BrokerSettings, quotas: Quotas) -> None:
        self._loop = loop
        self._settings = settings
        self._admission = Admission(quotas=quotas)
        self._memory = Memory(loop, settings.config.queued_max_request_bytes)
        self._listeners: dict[str, Endpoint] = {}
        self._advertised: dict[str, Endpoint] = {}
        self.servers: list[Server] = []
        self.endpoints: dict[str, Endpoint] = {}  # where clients are told to connect, by the listener they use
        self.limit_connections()

    @property
    def address(self) -> Endpoint:
        """Where clients of the first listener are told to connect."""
        return next(iter(self.endpoints.values()))

    @property
    def connections(self) -> list[Connection]:
        return [connection for server in self.servers for connection in server.connections]

    def read_settings(self) -> None:
        """ConfigError if the listeners cannot be as they are said to be."""
        config = self._settings.config
        self._listeners = read_listeners(config.listeners, config.listener_security_protocol_map)
        self._advertised = read_advertised(config.advertised_listeners, self._listeners)
        check_inter_broker(config.inter_broker_listener_name, self._listeners)
        if 0 < config.queued_max_request_bytes < config.socket_request_max_bytes:
            raise ConfigError("queued.max.request.bytes must be larger or equal to socket.request.max.bytes")

    def bind(self, handle: Handle) -> None:
        """Take the ports. Nobody is let in before `begin`."""
        for name, endpoint in self._listeners.items():
            server = self._listen(name, endpoint, handle)
            listened = Endpoint(endpoint.host, server.port)
            self.endpoints[name] = advertised_endpoint(listened, self._advertised.get(name))

    def _listen(self, listener: str, endpoint: Endpoint, handle: Handle) -> Server:
        config = self._settings.config
        server = Server(
            self._loop,
            endpoint.host,
            endpoint.port,
            handle,
            listener=listener,
            limits=Limits(max_frame_bytes=config.socket_request_max_bytes),
            admission=self._admission,
            max_idle_seconds=config.connections_max_idle_ms / 1000,
            backlog=config.socket_listen_backlog_size,
            buffers=SocketBuffers(config.socket_send_buffer_bytes, config.socket_receive_buffer_bytes),
            begins=False,
            memory=self._memory,
        )
        self.servers.append(server)
        return server

    def begin(self) -> None:
        self.limit_connections()  # with what was changed while the broker ran before
        for server in self.servers:
            server.begin()

    def limit_connections(self) -> None:
        """As the settings say now."""
        config, admission = self._settings.config, self._admission
        admission.max_connections = config.max_connections
        admission.max_connections_per_ip = config.max_connections_per_ip
        admission.max_creation_rate = config.max_connection_creation_rate
        overrides = config.max_connections_per_ip_overrides
        admission.limits_by_address = parse_address_limits("max.connections.per.ip.overrides", overrides)

    def close(self) -> None:
        for server in self.servers:
            server.close()
