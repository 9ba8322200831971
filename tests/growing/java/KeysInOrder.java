import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * One producer and a group of each protocol and kind of rebalance, until a line comes in. Each key counts from 0 on: a
 * group must not get a number before all below it. In the end all groups have everything, of so many partitions.
 */
public class KeysInOrder {
    static final int KEYS = 24;
    static final String RANGE = "org.apache.kafka.clients.consumer.RangeAssignor";
    static final String COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor";

    static final Map<String, Integer> written = new ConcurrentHashMap<>();
    static final AtomicReference<String> fault = new AtomicReference<>();
    static volatile boolean isWriting = true;
    static volatile boolean isReading = true;

    static class Group {
        final String name;
        final Map<String, Integer> read = new HashMap<>();
        final Set<Integer> partitions = new HashSet<>();

        Group(String name) {
            this.name = name;
        }

        synchronized void take(String key, int number, int partition, long offset) {
            int expected = read.getOrDefault(key, 0);
            partitions.add(partition);
            if (number > expected) {
                String where = " of partition " + partition + " at " + offset;
                fault.compareAndSet(null, name + ": " + key + " " + number + where + " before " + expected);
            }
            read.put(key, Math.max(expected, number + 1));
        }

        synchronized boolean hasAll(int count) {
            return read.equals(written) && partitions.size() == count;
        }
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        List<Group> groups = List.of(new Group("java-eager"), new Group("java-cooperative"), new Group("java-consumer"));
        for (Group group : groups) {
            for (int member = 0; member < 2; member++) {
                start(() -> read(bootstrap, topic, group));
            }
        }
        Thread writer = start(() -> write(bootstrap, topic));
        new BufferedReader(new InputStreamReader(System.in)).readLine();
        isWriting = false;
        writer.join();
        long deadline = System.currentTimeMillis() + 60_000;
        while (fault.get() == null && !groups.stream().allMatch(group -> group.hasAll(count))) {
            if (System.currentTimeMillis() > deadline) {
                fault.compareAndSet(null, "not everything was read in time");
            }
            Thread.sleep(20);
        }
        isReading = false;
        System.out.println(fault.get() == null ? "done" : fault.get());
        System.exit(fault.get() == null ? 0 : 1);
    }

    static Thread start(Runnable work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                fault.compareAndSet(null, String.valueOf(error));
            }
        });
        thread.setDaemon(true);
        thread.start();
        return thread;
    }

    static void write(String bootstrap, String topic) {
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "linger.ms", 5);
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            while (isWriting) {
                for (int each = 0; each < KEYS; each++) {
                    String key = "java-" + each;
                    int number = written.merge(key, 1, Integer::sum) - 1;
                    producer.send(new ProducerRecord<>(topic, key, String.valueOf(number)), (metadata, error) -> {
                        if (error != null) {
                            fault.compareAndSet(null, "the producer: " + error);
                        }
                    });
                }
                Thread.sleep(20);
            }
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    static void read(String bootstrap, String topic, Group group) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", group.name, "auto.offset.reset", "earliest",
            "auto.commit.interval.ms", 100, "metadata.max.age.ms", 500, "max.partition.fetch.bytes", 20_000));
        if (group.name.equals("java-consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("partition.assignment.strategy", group.name.equals("java-eager") ? RANGE : COOPERATIVE);
            settings.put("heartbeat.interval.ms", 300);
            settings.put("session.timeout.ms", 6000);
        }
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            while (isReading) {
                consumer.poll(Duration.ofMillis(50)).forEach(record ->
                    group.take(record.key(), Integer.parseInt(record.value()), record.partition(), record.offset()));
            }
        }
    }
}
