import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Consume, transform, produce: what is aborted is done again, each input comes out once; a zombie is fenced. */
public class Transactions {
    static final int COUNT = 30;
    static final String INPUT = "java-input";
    static final String OUTPUT = "java-output";

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(List.of(new NewTopic(INPUT, 1, (short) 1), new NewTopic(OUTPUT, 1, (short) 1))).all().get();
            write(bootstrap);
            transform(bootstrap);
            List<String> expected = new ArrayList<>();
            for (int number = 0; number < COUNT; number++) {
                expected.add("VALUE " + number);
            }
            check(read(bootstrap, COUNT).equals(expected), "each input once");
            fence(bootstrap);
            expected.add("of the heir");
            check(read(bootstrap, COUNT + 1).equals(expected), "nothing of the zombie");
            var described = admin.describeTransactions(List.of("java-id")).description("java-id").get();
            check(described.state().toString().startsWith("Complete"), "state " + described.state());
        }
        System.out.println("done");
    }

    static void write(String bootstrap) {
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < COUNT; number++) {
                producer.send(new ProducerRecord<>(INPUT, "value " + number));
            }
        }
    }

    /** Every second transaction is aborted, and its input read again. */
    static void transform(String bootstrap) {
        TopicPartition place = new TopicPartition(INPUT, 0);
        try (var producer = producer(bootstrap, "java-id"); var consumer = consumer(bootstrap)) {
            producer.initTransactions();
            consumer.subscribe(List.of(INPUT));
            long done = 0;
            for (int round = 0; done < COUNT; round++) {
                var records = consumer.poll(Duration.ofMillis(100)).records(place);
                if (records.isEmpty()) {
                    continue;
                }
                producer.beginTransaction();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(OUTPUT, record.value().toUpperCase()));
                }
                long next = records.get(records.size() - 1).offset() + 1;
                producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(next)), consumer.groupMetadata());
                if (round % 2 == 0) {
                    producer.abortTransaction();
                    consumer.seek(place, done);
                } else {
                    producer.commitTransaction();
                    done = next;
                }
            }
            check(consumer.committed(java.util.Set.of(place)).get(place).offset() == COUNT, "the group's offset");
        }
    }

    static void fence(String bootstrap) {
        try (var zombie = producer(bootstrap, "java-id"); var heir = producer(bootstrap, "java-id")) {
            zombie.initTransactions();
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(OUTPUT, "of the zombie"));
            zombie.flush();
            heir.initTransactions();
            heir.beginTransaction();
            heir.send(new ProducerRecord<>(OUTPUT, "of the heir"));
            try {
                zombie.commitTransaction();
                throw new AssertionError("the zombie was not fenced");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                heir.commitTransaction();
            } catch (KafkaException wrapped) {
                check(wrapped.getCause() instanceof ProducerFencedException
                    || wrapped.getCause() instanceof InvalidProducerEpochException, "fenced: " + wrapped);
                heir.commitTransaction();
            }
        }
    }

    static List<String> read(String bootstrap, int count) {
        TopicPartition place = new TopicPartition(OUTPUT, 0);
        List<String> values = new ArrayList<>();
        try (var consumer = consumer(bootstrap)) {
            consumer.assign(List.of(place));
            consumer.seekToBeginning(List.of(place));
            long deadline = System.currentTimeMillis() + 20_000;
            while (values.size() < count || consumer.position(place) < consumer.endOffsets(List.of(place)).get(place)) {
                check(System.currentTimeMillis() < deadline, values.size() + " of " + count + " values");
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }

    static KafkaProducer<String, String> producer(String bootstrap, String transactionalId) {
        Map<String, Object> options = Map.of("bootstrap.servers", bootstrap, "transactional.id", transactionalId);
        return new KafkaProducer<>(options, new StringSerializer(), new StringSerializer());
    }

    static KafkaConsumer<String, String> consumer(String bootstrap) {
        Map<String, Object> options = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap, "group.id", "java-transformers", "isolation.level", "read_committed",
            "auto.offset.reset", "earliest", "enable.auto.commit", false, "max.poll.records", 7,
            "fetch.max.wait.ms", 20));
        return new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer());
    }

    static void check(boolean isSo, String what) {
        if (!isSo) {
            throw new AssertionError(what);
        }
    }
}
