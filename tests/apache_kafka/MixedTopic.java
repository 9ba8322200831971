import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes one partition with everything a log may hold: several segments, all codecs, absent keys and values,
 * headers, an idempotent producer, committed, aborted and overlapping transactions. Prints what a consumer then
 * reads as JSON; bytes are in base64.
 */
public class MixedTopic {
    private static final long FIRST_TIMESTAMP = 1_700_000_000_000L;

    private final String bootstrap;
    private final TopicPartition partition;
    private final Random random = new Random(7);
    private int written = 0;

    private MixedTopic(String bootstrap, String topic) {
        this.bootstrap = bootstrap;
        this.partition = new TopicPartition(topic, 0);
    }

    public static void main(String[] arguments) throws Exception {
        MixedTopic mixed = new MixedTopic(arguments[0], arguments[1]);
        mixed.create();
        mixed.write();
        Map<String, Object> result = new HashMap<>();
        result.put("records", mixed.read("read_uncommitted"));
        result.put("committed", mixed.read("read_committed").stream().map(r -> r.get("offset")).toList());
        result.put("end_offset", mixed.endOffset());
        System.out.println(new ObjectMapper().writeValueAsString(result));
    }

    private void create() throws Exception {
        NewTopic topic = new NewTopic(partition.topic(), 1, (short) 1).configs(Map.of(
            "internal.segment.bytes", "16384", "index.interval.bytes", "512", "retention.ms", "-1"));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(topic)).all().get();
        }
    }

    private void write() {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            try (var producer = producer(Map.of("enable.idempotence", "false", "compression.type", codec))) {
                send(producer, 60);
            }
        }
        try (var producer = producer(Map.of("enable.idempotence", "true"))) {
            send(producer, 60);
            producer.flush();
            send(producer, 1);
        }
        try (var first = producer(Map.of("transactional.id", "first", "compression.type", "zstd"));
             var second = producer(Map.of("transactional.id", "second"))) {
            first.initTransactions();
            second.initTransactions();
            transaction(first, true);
            transaction(first, false);
            overlappingTransactions(first, second);
            transaction(second, true);
        }
        try (var producer = producer(Map.of("enable.idempotence", "false"))) {
            send(producer, 20);
        }
    }

    private void transaction(KafkaProducer<byte[], byte[]> producer, boolean commit) {
        producer.beginTransaction();
        send(producer, 20);
        producer.flush();
        if (commit) producer.commitTransaction(); else producer.abortTransaction();
    }

    /** The one that began later commits while the other, which is then aborted, is still open. */
    private void overlappingTransactions(KafkaProducer<byte[], byte[]> aborted, KafkaProducer<byte[], byte[]> committed) {
        aborted.beginTransaction();
        send(aborted, 5);
        aborted.flush();
        transaction(committed, true);
        send(aborted, 5);
        aborted.flush();
        aborted.abortTransaction();
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> configs = new HashMap<>(more);
        configs.put("bootstrap.servers", bootstrap);
        configs.put("linger.ms", 20);
        configs.put("batch.size", 4096);
        configs.put("acks", "all");
        return new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private void send(KafkaProducer<byte[], byte[]> producer, int count) {
        for (int i = 0; i < count; i++, written++) {
            byte[] key = written % 5 == 0 ? null : bytes("key-" + written % 17);
            var record = new ProducerRecord<>(partition.topic(), 0, FIRST_TIMESTAMP + 10L * written, key, value());
            if (written % 4 == 0) {
                record.headers().add("number", bytes(Integer.toString(written)));
                record.headers().add("absent", null);
                record.headers().add("empty", new byte[0]);
            }
            producer.send(record);
        }
    }

    private byte[] value() {
        if (written % 11 == 0) return null;
        if (written % 13 == 0) return new byte[0];
        byte[] value = new byte[100 + random.nextInt(200)];
        random.nextBytes(value);
        return value;
    }

    private List<Map<String, Object>> read(String isolation) {
        List<Map<String, Object>> records = new ArrayList<>();
        try (var consumer = consumer(isolation)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            while (consumer.position(partition) < end) {
                for (var record : consumer.poll(Duration.ofMillis(200))) records.add(describe(record));
            }
        }
        return records;
    }

    private long endOffset() {
        try (var consumer = consumer("read_uncommitted")) {
            return consumer.endOffsets(List.of(partition)).get(partition);
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Map<String, Object> configs = Map.of("bootstrap.servers", bootstrap, "isolation.level", isolation);
        return new KafkaConsumer<>(configs, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static Map<String, Object> describe(ConsumerRecord<byte[], byte[]> record) {
        List<Object[]> headers = new ArrayList<>();
        for (Header header : record.headers()) headers.add(new Object[] {header.key(), header.value()});
        Map<String, Object> described = new HashMap<>();
        described.put("offset", record.offset());
        described.put("timestamp", record.timestamp());
        described.put("key", record.key());
        described.put("value", record.value());
        described.put("headers", headers);
        return described;
    }

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
