"""How to reach the cluster: what every task and the driver of a query are told."""

from __future__ import annotations

from typing import NamedTuple

from ottla.client import Admin, ClientOptions
from ottla.pipelines.options import INT32, OptionError, Options

_DEFAULTS = ClientOptions()


class Cluster(NamedTuple):
    """The first brokers to ask, and the client's settings. Plain data, for it is sent to the workers."""

    bootstrap: str
    options: ClientOptions

    def admin(self) -> Admin:
        return Admin(self.bootstrap, self.options)

    def hasty(self, patience_ms: int) -> Cluster:
        """For a question that is given up sooner."""
        return self._replace(options=self.options._replace(retry_timeout_ms=patience_ms))


def cluster_of(options: Options) -> Cluster:
    protocol = options.text("kafka.security.protocol", "PLAINTEXT").upper()
    if protocol != "PLAINTEXT":
        raise OptionError(f"option kafka.security.protocol is PLAINTEXT: this client does not speak {protocol}")
    client = ClientOptions(
        client_id=options.text("kafka.client.id", "ottla-spark"),
        connect_timeout_ms=options.number(
            "kafka.socket.connection.setup.timeout.ms", _DEFAULTS.connect_timeout_ms, 1, INT32
        ),
        request_timeout_ms=options.number("kafka.request.timeout.ms", _DEFAULTS.request_timeout_ms, 1, INT32),
        retry_pause_ms=options.number("kafka.retry.backoff.ms", _DEFAULTS.retry_pause_ms, 1, INT32),
    )
    return Cluster(options.required("kafka.bootstrap.servers"), client)
