import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The same load as that of the Python libraries: numbers are written, and read in a group, until it is told to end. */
public class FailoverLoad {
    static final int PARTITIONS = 3;
    static final int AT_ONCE = 5;
    static final Duration POLL = Duration.ofMillis(50);
    static final long LAST_NS = 60_000_000_000L;
    static final Set<Integer> acknowledged = new HashSet<>();
    static final Set<Integer> received = new HashSet<>();

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        AtomicBoolean isWanted = new AtomicBoolean(true);
        Thread working = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            isWanted.set(false);
            try {
                working.join();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        Map<String, Object> writes = Map.of("bootstrap.servers", bootstrap, "acks", "all");
        Map<String, Object> reads = Map.of(
            "bootstrap.servers", bootstrap, "group.id", topic + "-java",
            "enable.auto.commit", false, "auto.offset.reset", "earliest");
        try (var producer = new KafkaProducer<>(writes, new StringSerializer(), new StringSerializer());
                var consumer = new KafkaConsumer<>(reads, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            for (int first = 0; isWanted.get(); first += AT_ONCE) {
                write(producer, topic, first);
                read(consumer);
            }
            long deadline = System.nanoTime() + LAST_NS;
            while (!received.containsAll(acknowledged) && System.nanoTime() < deadline) {
                read(consumer);
            }
        }
        System.out.println("done " + received.size());
    }

    static void write(KafkaProducer<String, String> producer, String topic, int first) {
        try {
            List<? extends Future<?>> sent = IntStream.range(first, first + AT_ONCE)
                .mapToObj(n -> producer.send(new ProducerRecord<>(topic, n % PARTITIONS, null, String.valueOf(n))))
                .toList();
            for (Future<?> future : sent) {
                future.get();
            }
            for (int number = first; number < first + AT_ONCE; number++) {
                acknowledged.add(number);
                System.out.println("acknowledged " + number);
            }
        } catch (Exception error) {
            System.out.println("error write: " + error);
        }
    }

    static void read(KafkaConsumer<String, String> consumer) {
        try {
            var records = consumer.poll(POLL);
            for (ConsumerRecord<String, String> record : records) {
                received.add(Integer.valueOf(record.value()));
                System.out.println("received " + record.value());
            }
            if (!records.isEmpty()) {
                consumer.commitSync();
            }
        } catch (Exception error) {
            System.out.println("error read: " + error);
        }
    }
}
