import java.util.TreeMap;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Values of a broker's gauges: arguments are its JMX port and patterns of MBean names. Answers "NAME VALUE" lines, sorted.
 */
public final class Gauges {
    public static void main(String[] arguments) throws Exception {
        String address = "service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi";
        TreeMap<String, Object> values = new TreeMap<>();
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (int i = 1; i < arguments.length; i++) {
                for (ObjectName name : server.queryNames(new ObjectName(arguments[i]), null)) {
                    values.put(name.getCanonicalName(), server.getAttribute(name, "Value"));
                }
            }
        }
        values.forEach((name, value) -> System.out.println(name + " " + value));
        System.exit(0);
    }
}
