import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigResource;

/**
 * Asks a broker what it thinks of topic configurations. Reads a JSON list of configurations, and prints as JSON
 * what each would be answered with on creation (null: created), and the description of a topic that sets nothing.
 */
public class AskTopicConfigs {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<Map<String, String>> cases = json.readValue(System.in, new TypeReference<>() { });
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            List<Map<String, Object>> answers = new ArrayList<>();
            for (Map<String, String> configs : cases) {
                Map<String, Object> answer = new LinkedHashMap<>();
                answer.put("configs", configs);
                answer.put("error", errorOf(admin, configs));
                answers.add(answer);
            }
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("described", describe(admin, arguments[1]));
            result.put("answers", answers);
            System.out.println(json.writeValueAsString(result));
        }
    }

    private static String errorOf(Admin admin, Map<String, String> configs) throws InterruptedException {
        NewTopic topic = new NewTopic("never-created", 1, (short) 1).configs(configs);
        try {
            admin.createTopics(List.of(topic), new CreateTopicsOptions().validateOnly(true)).all().get();
            return null;
        } catch (ExecutionException error) {
            return error.getCause().getMessage();
        }
    }

    private static Map<String, Object> describe(Admin admin, String name) throws Exception {
        admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all().get();
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        Map<String, Object> described = new TreeMap<>();
        for (ConfigEntry entry : admin.describeConfigs(List.of(topic), options).all().get().get(topic).entries()) {
            Map<String, Object> fields = new LinkedHashMap<>();
            fields.put("kind", entry.type().name());
            fields.put("value", entry.value());
            fields.put("source", entry.source().name());
            fields.put("sensitive", entry.isSensitive());
            fields.put("read_only", entry.isReadOnly());
            fields.put("synonyms", entry.synonyms().stream()
                .map(s -> List.of(s.name(), s.value(), s.source().name())).toList());
            described.put(entry.name(), fields);
        }
        return described;
    }
}
