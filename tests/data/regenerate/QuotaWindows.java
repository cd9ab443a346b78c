import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.log.remote.quota.RLMQuotaManager;
import org.apache.kafka.server.log.remote.quota.RLMQuotaManagerConfig;
import org.apache.kafka.server.quota.QuotaType;

/**
 * What Kafka's own RLMQuotaManager, Avg and Max answer to random records and clock steps, as JSON lines.
 *
 * A line is one history: its settings, and its events [time, recorded value or -1, throttle, rate, average, maximum].
 * Every event measures all four; null is "no value yet". Expired sensors are swept before every event.
 */
public final class QuotaWindows {
    private static final long HOUR_MS = 3_600_000;

    public static void main(String[] arguments) throws Exception {
        Random random = new Random(956);
        for (int history = 0; history < 60; history++) {
            System.out.println(history(random));
        }
    }

    private static String history(Random random) throws Exception {
        int samples = List.of(1, 2, 3, 11, 61).get(random.nextInt(5));
        int sampleSeconds = 1 + random.nextInt(3) / 2;
        long quota = List.of(50L, 1_000L, 1_048_576L).get(random.nextInt(3));
        long spanMs = (long) samples * sampleSeconds * 1000;
        AtomicLong now = new AtomicLong(1_700_000_000_000L);
        Time time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (self, method, ignored) -> method.getName().equals("milliseconds") ? now.get() : method.invoke(Time.SYSTEM, ignored));
        Metrics metrics = new Metrics(new MetricConfig(), new ArrayList<>(), time, true);
        RLMQuotaManager manager = new RLMQuotaManager(
            new RLMQuotaManagerConfig(quota, samples, sampleSeconds), metrics, QuotaType.RLM_COPY, "", time);
        MetricConfig config = new MetricConfig().samples(samples).timeWindow(sampleSeconds, java.util.concurrent.TimeUnit.SECONDS);
        Sensor throttle = metrics.sensor("throttle", config);
        MetricName avg = metrics.metricName("avg", "throttle");
        MetricName max = metrics.metricName("max", "throttle");
        throttle.add(avg, new Avg());
        throttle.add(max, new Max());
        Method sweep = sweep(metrics);
        List<String> events = new ArrayList<>();
        for (int event = 0; event < 60; event++) {
            now.addAndGet(step(random, sampleSeconds * 1000L, spanMs));
            sweep.invoke(sweeper(metrics));
            long value = random.nextInt(3) == 0 ? -1 : (long) (random.nextDouble() * quota * sampleSeconds * 2);
            if (value >= 0) {
                manager.record(value);
                throttle.record(value);
            }
            long throttleMs = manager.getThrottleTimeMs();
            events.add("[" + now.get() + "," + value + "," + throttleMs + "," + rate(metrics)
                + "," + number(metrics.metric(avg)) + "," + number(metrics.metric(max)) + "]");
        }
        metrics.close();
        return "{\"samples\":" + samples + ",\"sample_ms\":" + sampleSeconds * 1000 + ",\"quota\":" + quota
            + ",\"events\":[" + String.join(",", events) + "]}";
    }

    private static long step(Random random, long sampleMs, long spanMs) {
        return switch (random.nextInt(12)) {
            case 0 -> 0;
            case 1 -> sampleMs;
            case 2 -> spanMs - 1;
            case 3 -> spanMs;
            case 4 -> -random.nextInt((int) spanMs * 2);
            case 5 -> random.nextInt(4) == 0 ? HOUR_MS + random.nextInt(2) : spanMs + random.nextInt((int) spanMs);
            default -> random.nextInt((int) (sampleMs * 2));
        };
    }

    private static Object sweeper(Metrics metrics) throws Exception {
        Class<?> task = Class.forName("org.apache.kafka.common.metrics.Metrics$ExpireSensorTask");
        Constructor<?> constructor = task.getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        return constructor.newInstance(metrics);
    }

    private static Method sweep(Metrics metrics) throws Exception {
        Method run = sweeper(metrics).getClass().getDeclaredMethod("run");
        run.setAccessible(true);
        return run;
    }

    private static String rate(Metrics metrics) {
        for (Map.Entry<MetricName, KafkaMetric> entry : metrics.metrics().entrySet()) {
            if (entry.getKey().name().equals("byte-rate")) {
                return number(entry.getValue());
            }
        }
        throw new IllegalStateException("no byte-rate");
    }

    private static String number(KafkaMetric metric) {
        double value = (double) metric.metricValue();
        return Double.isFinite(value) ? Double.toString(value) : "null";
    }
}
