import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;

/** Arguments: bootstrap servers, `move` or `lead`, topic, partition, and for `move` the brokers, the preferred leader first. */
public final class Replicas {
    public static void main(String[] arguments) throws Exception {
        TopicPartition partition = new TopicPartition(arguments[2], Integer.parseInt(arguments[3]));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            if (arguments[1].equals("move")) {
                List<Integer> brokers = new ArrayList<>();
                for (String broker : arguments[4].split(",")) {
                    brokers.add(Integer.parseInt(broker));
                }
                Map<TopicPartition, Optional<NewPartitionReassignment>> wish =
                    Map.of(partition, Optional.of(new NewPartitionReassignment(brokers)));
                admin.alterPartitionReassignments(wish).all().get(60, TimeUnit.SECONDS);
            } else {
                admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).all().get(60, TimeUnit.SECONDS);
            }
        }
        System.exit(0);
    }
}
