import com.sun.management.OperatingSystemMXBean;
import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Debezium's embedded engine on the binlog of MariaDB, to JSON in hand. Arguments: port, folder, rows. With 0 rows it
 * only notes where the binlog ends; else it reads so many from there, and prints seconds and processor seconds from the
 * first batch to the last.
 */
public class DebeziumReads {
    public static void main(String[] arguments) throws Exception {
        String folder = arguments[1];
        long wanted = Long.parseLong(arguments[2]);
        Properties settings = new Properties();
        settings.setProperty("name", "bench");
        settings.setProperty("connector.class", "io.debezium.connector.mariadb.MariaDbConnector");
        settings.setProperty("offset.storage", "org.apache.kafka.connect.storage.FileOffsetBackingStore");
        settings.setProperty("offset.storage.file.filename", folder + "/offsets");
        settings.setProperty("offset.flush.interval.ms", "100");
        settings.setProperty("database.hostname", "127.0.0.1");
        settings.setProperty("database.port", arguments[0]);
        settings.setProperty("database.user", "bench");
        settings.setProperty("database.password", "bench");
        settings.setProperty("database.server.id", "5401");
        settings.setProperty("database.ssl.mode", "disable");
        settings.setProperty("database.include.list", "shop");
        settings.setProperty("topic.prefix", "bench");
        settings.setProperty("schema.history.internal", "io.debezium.storage.file.history.FileSchemaHistory");
        settings.setProperty("schema.history.internal.file.filename", folder + "/schemas");
        settings.setProperty("snapshot.mode", "no_data");
        settings.setProperty("include.schema.changes", "false");
        settings.setProperty("key.converter.schemas.enable", "false");
        settings.setProperty("value.converter.schemas.enable", "false");
        settings.setProperty("poll.interval.ms", "10");

        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        AtomicLong seen = new AtomicLong();
        long[] begun = new long[2];
        CountDownLatch done = new CountDownLatch(1);
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(settings)
            .notifying((List<ChangeEvent<String, String>> events,
                        DebeziumEngine.RecordCommitter<ChangeEvent<String, String>> committer) -> {
                for (ChangeEvent<String, String> event : events) {
                    if (event.destination().equals("bench.shop.orders")) {
                        if (seen.getAndIncrement() == 0) {
                            begun[0] = System.nanoTime();
                            begun[1] = system.getProcessCpuTime();
                        }
                    }
                    committer.markProcessed(event);
                }
                committer.markBatchFinished();
                if (wanted > 0 && seen.get() >= wanted) {
                    System.out.printf("%f %f%n", (System.nanoTime() - begun[0]) / 1e9,
                        (system.getProcessCpuTime() - begun[1]) / 1e9);
                    done.countDown();
                } else if (wanted == 0 && seen.get() > 0) {
                    done.countDown();
                }
            })
            .build();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        thread.execute(engine);
        System.out.println("started");
        done.await();
        Thread.sleep(500);
        engine.close();
        thread.shutdown();
        System.exit(0);
    }
}
