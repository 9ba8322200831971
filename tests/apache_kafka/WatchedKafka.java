import java.io.InputStream;

/** Apache Kafka that ends, as if killed, when its standard input does: so it never outlives who started it. */
public class WatchedKafka {
    public static void main(String[] arguments) {
        Thread watch = new Thread(WatchedKafka::haltAtEndOfInput, "watch");
        watch.setDaemon(true);
        watch.start();
        kafka.Kafka.main(arguments);
    }

    private static void haltAtEndOfInput() {
        try (InputStream input = System.in) {
            while (input.read() >= 0) { }
        } catch (java.io.IOException ended) {
            // A broken pipe tells the same as its end.
        }
        Runtime.getRuntime().halt(137);
    }
}
