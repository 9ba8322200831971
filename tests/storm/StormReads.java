import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentSkipListMap;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.KafkaSpout;
import org.apache.storm.kafka.spout.KafkaSpoutConfig;
import org.apache.storm.topology.BasicOutputCollector;
import org.apache.storm.topology.OutputFieldsDeclarer;
import org.apache.storm.topology.TopologyBuilder;
import org.apache.storm.topology.base.BaseBasicBolt;
import org.apache.storm.tuple.Tuple;

/** A topology in a local cluster reads a topic with Storm's own spout, and prints what it got and how often. */
public class StormReads {
    static final Map<String, Integer> seen = new ConcurrentSkipListMap<>();

    public static class Collect extends BaseBasicBolt {
        @Override
        public void execute(Tuple tuple, BasicOutputCollector collector) {
            String place = tuple.getIntegerByField("partition") + " " + tuple.getLongByField("offset");
            seen.merge(place + " " + tuple.getStringByField("key") + " " + tuple.getStringByField("value"), 1, Integer::sum);
        }

        @Override
        public void declareOutputFields(OutputFieldsDeclarer declarer) {}
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0];
        String topic = arguments[1];
        int count = Integer.parseInt(arguments[2]);
        KafkaSpoutConfig<String, String> reads = KafkaSpoutConfig.builder(bootstrap, topic)
            .setProp(ConsumerConfig.GROUP_ID_CONFIG, "storm")
            .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
            .setOffsetCommitPeriodMs(200)
            .build();
        TopologyBuilder builder = new TopologyBuilder();
        builder.setSpout("kafka", new KafkaSpout<>(reads), 2);
        builder.setBolt("collect", new Collect(), 2).shuffleGrouping("kafka");
        try (LocalCluster cluster = new LocalCluster();
             LocalCluster.LocalTopology topology = cluster.submitTopology("reads", new Config(), builder.createTopology())) {
            long deadline = System.currentTimeMillis() + 90_000;
            while (seen.size() < count && System.currentTimeMillis() < deadline) {
                Thread.sleep(50);
            }
            Thread.sleep(2_000); // what comes twice comes now, and what was read is committed
        }
        new TreeMap<>(seen).forEach((line, times) -> System.out.println(times + " " + line));
        System.out.flush();
        Runtime.getRuntime().halt(0); // threads of the cluster would go on
    }
}
