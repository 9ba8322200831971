import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Topics are made, described, altered and deleted; records of every codec and acks come back from any place. */
public class Records {
    static final long FIRST_MS = 1_700_000_000_000L;
    static final int COUNT = 20;

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
                writeAndRead(bootstrap, admin, codec, "all");
            }
            for (String acks : List.of("1", "0")) {
                writeAndRead(bootstrap, admin, "lz4", acks);
            }
            administer(bootstrap, admin, "java-administered");
        }
        System.out.println("done");
    }

    static void writeAndRead(String bootstrap, Admin admin, String codec, String acks) throws Exception {
        String topic = "java-" + codec + "-" + acks;
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        write(bootstrap, topic, codec, acks);
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(bootstrap)) {
            for (int start : new int[] {0, COUNT / 2, COUNT - 1}) {
                consumer.assign(List.of(place));
                consumer.seek(place, start);
                int offset = start;
                for (ConsumerRecord<String, String> record : read(consumer, COUNT - start)) {
                    check(record.offset() == offset, topic + " offset " + record.offset() + " for " + offset);
                    check(record.value().equals(value(offset)), topic + " value " + record.value());
                    check(record.timestamp() == FIRST_MS + offset * 1000L, topic + " time " + record.timestamp());
                    byte[] header = record.headers().lastHeader("number").value();
                    check(new String(header, StandardCharsets.UTF_8).equals("" + offset), topic + " header");
                    offset++;
                }
            }
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(place, FIRST_MS + 4500)).get(place);
            check(found.offset() == 5 && found.timestamp() == FIRST_MS + 5000, topic + " by time " + found);
            long late = FIRST_MS + COUNT * 1000L;
            check(consumer.offsetsForTimes(Map.of(place, late)).get(place) == null, topic + " later than all");
            check(consumer.endOffsets(List.of(place)).get(place) == COUNT, topic + " end");
            check(consumer.beginningOffsets(List.of(place)).get(place) == 0, topic + " beginning");
        }
    }

    static void write(String bootstrap, String topic, String codec, String acks) {
        Map<String, Object> options = Map.of(
            "bootstrap.servers", bootstrap, "acks", acks, "compression.type", codec,
            "enable.idempotence", acks.equals("all"), "linger.ms", 5);
        try (var producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < COUNT; number++) {
                var record = new ProducerRecord<>(topic, 0, FIRST_MS + number * 1000L, "key", value(number));
                record.headers().add("number", ("" + number).getBytes(StandardCharsets.UTF_8));
                producer.send(record);
            }
        }
    }

    static void administer(String bootstrap, Admin admin, String topic) throws Exception {
        NewTopic asked = new NewTopic(topic, 2, (short) 1).configs(Map.of("retention.ms", "60000"));
        admin.createTopics(List.of(asked)).all().get();
        check(refusal(() -> admin.createTopics(List.of(asked)).all().get()) instanceof TopicExistsException, "exists");
        check(admin.listTopics().names().get().contains(topic), "listed");
        check(admin.describeCluster().nodes().get().size() == 1, "one node");
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(4))).all().get();
        check(partitionCount(admin, topic) == 4, "partitions");

        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        check(config(admin, resource, "retention.ms").equals("60000"), "as created");
        set(admin, resource, "retention.ms", "120000");
        check(config(admin, resource, "retention.ms").equals("120000"), "as altered");
        Throwable refused = refusal(() -> set(admin, resource, "retention.ms", "soon"));
        check(refused instanceof InvalidConfigurationException, "bad config: " + refused);

        write(bootstrap, topic, "none", "all");
        TopicPartition place = new TopicPartition(topic, 0);
        var deleted = admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(7))).lowWatermarks().get(place);
        check(deleted.get().lowWatermark() == 7, "deleted records");
        admin.deleteTopics(List.of(topic)).all().get();
        refused = refusal(() -> admin.deleteTopics(List.of(topic)).all().get());
        check(refused instanceof UnknownTopicOrPartitionException, "deleted: " + refused);
    }

    static int partitionCount(Admin admin, String topic) throws Exception {
        return admin.describeTopics(Set.of(topic)).allTopicNames().get().get(topic).partitions().size();
    }

    static String config(Admin admin, ConfigResource resource, String name) throws Exception {
        Config config = admin.describeConfigs(List.of(resource)).all().get().get(resource);
        return config.get(name).value();
    }

    static void set(Admin admin, ConfigResource resource, String name, String value) throws Exception {
        Collection<AlterConfigOp> change =
            List.of(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET));
        admin.incrementalAlterConfigs(Map.of(resource, change)).all().get();
    }

    interface Work {
        void run() throws Exception;
    }

    static Throwable refusal(Work work) throws Exception {
        try {
            work.run();
            return null;
        } catch (ExecutionException refused) {
            return refused.getCause();
        }
    }

    static KafkaConsumer<String, String> consumer(String bootstrap) {
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap, "fetch.max.wait.ms", 20);
        return new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
    }

    static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        long deadline = System.currentTimeMillis() + 20_000;
        while (records.size() < count) {
            check(System.currentTimeMillis() < deadline, count + " records, " + records.size() + " are here");
            consumer.poll(Duration.ofMillis(100)).forEach(records::add);
        }
        return records;
    }

    static String value(int number) {
        return ("value " + number + " ").repeat(20);
    }

    static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError(what);
        }
    }
}
