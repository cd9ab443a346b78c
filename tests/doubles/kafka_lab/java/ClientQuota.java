import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;

/** Sets consumer_byte_rate, in bytes a second, for every client without a quota of its own. Arguments: bootstrap, rate. */
class ClientQuota {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> everyone = new HashMap<>();
        everyone.put(ClientQuotaEntity.CLIENT_ID, null);
        var rate = new ClientQuotaAlteration.Op("consumer_byte_rate", Double.valueOf(arguments[1]));
        var change = new ClientQuotaAlteration(new ClientQuotaEntity(everyone), List.of(rate));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            admin.alterClientQuotas(List.of(change)).all().get();
        }
    }
}
