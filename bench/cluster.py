"""Three brokers of Ottla beside three of Apache Kafka, all of them on this machine: replication 3, acks=all.

Both clusters run at the same time, and each round puts one load on one and then on the other.
"""

import statistics
import time

from bench import clients_cluster as raw
from bench.broker import LATENCY_RATE, MEGABYTE, SIZES, Amounts, Bench, Samples, has_confluent_kafka, kinds_to_compare
from bench.broker_figures import Comparison, format_comparisons
from bench.clients_raw import end_to_end_seconds
from bench.cluster_servers import NODES, KafkaCluster, OttlaCluster, ServerCluster, clusters

FULL = Amounts(5, 1, {"100 B": 40 * MEGABYTE, "1 KB": 200 * MEGABYTE}, 2.0, 5.0, 2_000)
QUICK = Amounts(1, 1, {"100 B": 5 * MEGABYTE, "1 KB": 20 * MEGABYTE}, 0.5, 2.0, 200)
IDLE_SECONDS = 2.0

format_results = format_comparisons


class ClusterBench(Bench):
    def measure(self) -> None:
        kinds: list[type[ServerCluster]] = [OttlaCluster, KafkaCluster]
        del kinds[len(self.kinds) :]
        with clusters(kinds) as running:
            for cluster in running:
                raw.start(cluster)
            time.sleep(IDLE_SECONDS)
            self.take("memory, idle", memory_idle, running, 1)
            if has_confluent_kafka():
                for cluster in running:
                    throughput(cluster, "100 B", QUICK.produced_bytes["100 B"])
                for size in SIZES:
                    self.take(
                        size,
                        lambda cluster, size=size: throughput(cluster, size, self.amounts.produced_bytes[size]),  # type: ignore[misc]
                        running,
                        self.amounts.rounds,
                    )
            self.take(
                "latency", lambda cluster: latency(cluster, self.amounts.latency_seconds), running, self.amounts.rounds
            )
            self.take("memory, after load", memory_after_load, running, 1)
            self.take("failover", failover, running, self.amounts.rounds)
        for kind in kinds:  # not at the same time: thousands of topics are a load of their own
            with clusters([kind]) as [cluster]:
                raw.start(cluster)
                self.take("many topics", lambda cluster: many_topics(cluster, self.amounts.most_topics), [cluster], 1)


def run(quick: bool) -> list[Comparison]:
    if not has_confluent_kafka():
        print("  no throughput without confluent-kafka: pip install -e '.[bench]'")
    return ClusterBench(kinds_to_compare(), QUICK if quick else FULL).run()


def new_topic(cluster: ServerCluster, partitions: int = 1) -> str:
    name = f"topic-{time.time_ns()}"
    raw.create(cluster, [name], partitions)
    raw.write_to_each(cluster, [name], NODES)
    return name


def throughput(cluster: ServerCluster, size: str, produced_bytes: int) -> Samples:
    """To three partitions, of which each broker leads one."""
    from bench import clients

    topic = new_topic(cluster, partitions=len(NODES))
    cpu = cluster.cpu_seconds()
    load = clients.Load(SIZES[size], "all", "none", produced_bytes // SIZES[size], partitions=len(NODES))
    seconds = clients.produce(cluster, topic, load)
    raw.wait_until_in_sync(cluster, [topic])
    gigabytes = produced_bytes / MEGABYTE / 1_000
    return {
        f"three brokers: produce {size}, acks=all": produced_bytes / MEGABYTE / seconds,
        f"three brokers: CPU of producing {size}": (cluster.cpu_seconds() - cpu) / gigabytes,
    }


def latency(cluster: ServerCluster, seconds: float) -> Samples:
    topic = new_topic(cluster)
    leader = cluster.members[raw.metadata(cluster, [topic], NODES).of_topic[topic]]
    taken = end_to_end_seconds(leader, topic, rate=LATENCY_RATE, seconds=seconds, acks=raw.ALL)
    hundredths = statistics.quantiles(taken, n=100, method="inclusive")
    name = f"three brokers: end to end at {LATENCY_RATE}/s, acks=all"
    return {f"{name}, p50": hundredths[49] * 1_000, f"{name}, p99": hundredths[98] * 1_000}


def memory_idle(cluster: ServerCluster) -> Samples:
    return {"three brokers: memory, idle": cluster.memory_bytes() / MEGABYTE}


def memory_after_load(cluster: ServerCluster) -> Samples:
    return {"three brokers: memory, after load": cluster.memory_bytes() / MEGABYTE}


def failover(cluster: ServerCluster) -> Samples:
    topic = new_topic(cluster)
    return {"three brokers: leader killed to next acknowledged write": raw.failover(cluster, [topic])}


def many_topics(cluster: ServerCluster, count: int) -> Samples:
    names = [f"many-{number}" for number in range(count)]
    label = f"three brokers, {count:,} topics:"
    started = time.monotonic()
    raw.create(cluster, names)
    raw.write_to_each(cluster, names, NODES)
    samples = {f"{label} created until each takes a write": time.monotonic() - started}
    samples[f"{label} memory"] = cluster.memory_bytes() / MEGABYTE
    samples[f"{label} one killed until each takes a write"] = raw.failover(cluster, names)
    cluster.stop()
    samples[f"{label} all started until each takes a write"] = raw.start(cluster, names)
    return samples
