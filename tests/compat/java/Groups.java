import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Two members share a topic, one leaves, the other goes on with all of it; the group's offsets are kept. */
public class Groups {
    static final int PARTITIONS = 4;
    static final Duration POLL = Duration.ofMillis(50);

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String protocol = arguments[1];
        String topic = "java-group-" + protocol;
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            share(bootstrap, protocol, topic);
            var groups = admin.describeConsumerGroups(List.of(topic)).all().get();
            check(groups.get(topic).members().isEmpty(), "nobody is left");
            long committed = 0;
            for (var offset : admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get().values()) {
                committed += offset.offset();
            }
            check(committed == 40, "committed " + committed);
            admin.deleteConsumerGroups(List.of(topic)).all().get();
        }
        System.out.println("done");
    }

    static void share(String bootstrap, String protocol, String topic) {
        Map<String, Integer> seen = new HashMap<>();
        try (KafkaConsumer<String, String> first = member(bootstrap, protocol, topic)) {
            first.subscribe(List.of(topic));
            try (KafkaConsumer<String, String> second = member(bootstrap, protocol, topic)) {
                second.subscribe(List.of(topic));
                settle(List.of(first, second), seen);
                check(first.assignment().size() == 2, "an even share: " + first.assignment());
                Set<TopicPartition> both = new HashSet<>(first.assignment());
                both.retainAll(second.assignment());
                check(both.isEmpty(), "two owners of " + both);
                write(bootstrap, topic, 0, 20);
                take(List.of(first, second), seen, 20);
                first.commitSync();
                second.commitSync();
            }
            settle(List.of(first), seen);
            write(bootstrap, topic, 20, 40);
            take(List.of(first), seen, 40);
            first.commitSync();
        }
        check(seen.values().stream().allMatch(times -> times == 1), "each once: " + seen);
    }

    static KafkaConsumer<String, String> member(String bootstrap, String protocol, String group) {
        Map<String, Object> options = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "fetch.max.wait.ms", 20));
        if (protocol.equals("classic")) {
            options.put("heartbeat.interval.ms", 200);
        }
        return new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
    }

    /** Polls until the members own all partitions. */
    static void settle(Collection<KafkaConsumer<String, String>> members, Map<String, Integer> seen) {
        long deadline = System.currentTimeMillis() + 20_000;
        while (members.stream().mapToInt(member -> member.assignment().size()).sum() != PARTITIONS
            || members.stream().anyMatch(member -> member.assignment().isEmpty())) {
            check(System.currentTimeMillis() < deadline, "the partitions do not find owners");
            poll(members, seen);
        }
    }

    static void take(Collection<KafkaConsumer<String, String>> members, Map<String, Integer> seen, int count) {
        long deadline = System.currentTimeMillis() + 20_000;
        while (seen.size() < count) {
            check(System.currentTimeMillis() < deadline, seen.size() + " of " + count + " records");
            poll(members, seen);
        }
    }

    static void poll(Collection<KafkaConsumer<String, String>> members, Map<String, Integer> seen) {
        for (KafkaConsumer<String, String> member : members) {
            member.poll(POLL).forEach(record -> seen.merge(record.value(), 1, Integer::sum));
        }
    }

    static void write(String bootstrap, String topic, int first, int end) {
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            for (int number = first; number < end; number++) {
                producer.send(new ProducerRecord<>(topic, number % PARTITIONS, null, "value " + number));
            }
        }
    }

    static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError(what);
        }
    }
}
