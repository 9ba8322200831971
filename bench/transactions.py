"""Transactions beside Apache Kafka: many small ones and few large ones, from bare sockets and from librdkafka."""

import time

from bench import clients_raw as raw
from bench import clients_transactions as transaction_clients
from bench.broker import MEGABYTE, QUICK, Amounts, Bench, Samples, has_confluent_kafka, kinds_to_compare
from bench.broker_figures import Comparison, format_comparisons
from bench.broker_servers import Server, servers

SIZES = (1, 10, 100)  # records in a transaction
PRODUCERS = (1, 8)
WARM_UPS = 3  # a transaction goes through more of a broker than any other request
FULL = Amounts(5, 1, {"1 KB": MEGABYTE}, 3.0, 0, 0)

format_results = format_comparisons


class TransactionBench(Bench):
    def measure(self) -> None:
        amounts = self.amounts
        with servers(self.kinds) as running:
            for server in running:
                raw.start_to_first_record(server)
                for producers in PRODUCERS:
                    on_sockets(server, SIZES[0], producers, amounts.seconds * WARM_UPS)
            for size in SIZES:
                for producers in PRODUCERS:
                    self.take(
                        f"transactions of {size}, {producers} at once",
                        lambda server, size=size, producers=producers: on_sockets(  # type: ignore[misc]
                            server, size, producers, amounts.seconds
                        ),
                        running,
                        amounts.rounds,
                    )
                if has_confluent_kafka():
                    self.take(
                        f"transactions of {size}, confluent-kafka",
                        lambda server, size=size: with_librdkafka(server, size, amounts.seconds),  # type: ignore[misc]
                        running,
                        amounts.rounds,
                    )


def run(quick: bool) -> list[Comparison]:
    if not has_confluent_kafka():
        print("  bare sockets only, without confluent-kafka: pip install -e '.[bench]'")
    return TransactionBench(kinds_to_compare(), QUICK if quick else FULL).run()


def on_sockets(server: Server, size: int, producers: int, seconds: float) -> Samples:
    name = f"transactions-{time.time_ns()}"
    raw.new_topic(server, name)
    clients = [
        transaction_clients.TransactionalClient(server, f"{name}-{number}", name, size) for number in range(producers)
    ]
    try:
        cpu = server.cpu_seconds()
        rate = transaction_clients.transactions_a_second(clients, seconds)
        cpu_us = (server.cpu_seconds() - cpu) / (rate * seconds) * 1e6
    finally:
        for client in clients:
            client.close()
    whose = f"{size} a transaction, {_producers(producers)}"
    return {f"records, {whose}": rate * size, f"CPU of a transaction, {whose}": cpu_us}


def with_librdkafka(server: Server, size: int, seconds: float) -> Samples:
    from bench import clients

    topic = f"transactions-{time.time_ns()}"
    raw.new_topic(server, topic)
    rate = clients.produce_in_transactions(server, topic, size, seconds)
    return {f"records, {size} a transaction, confluent-kafka": rate}


def _producers(count: int) -> str:
    return "1 producer" if count == 1 else f"{count} producers"
