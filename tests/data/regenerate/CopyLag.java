import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.Map;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.slf4j.LoggerFactory;
import sun.misc.Unsafe;

/**
 * What Kafka's own copy task answers of a rolled segment, as lines of numbers: is it copied now?
 *
 * A line: remote.copy.lag.ms, remote.copy.lag.bytes, retention.ms, retention.bytes, the age of the segment's largest
 * timestamp in milliseconds, the bytes of the log after the segment, and true or false.
 */
class CopyLag {
    private static final long NOW_MS = 1_700_000_000_000L;

    /** A segment of which only the largest timestamp is asked. */
    static class Aged extends LogSegment {
        long timestamp;

        Aged() {
            super(null, null, null, null, 0, 0, 0, null);
        }

        @Override
        public long largestTimestamp() {
            return timestamp;
        }
    }

    public static void main(String[] arguments) throws Exception {
        Field field = Unsafe.class.getDeclaredField("theUnsafe");
        field.setAccessible(true);
        Unsafe unsafe = (Unsafe) field.get(null);
        Class<?> task = Class.forName("org.apache.kafka.server.log.remote.storage.RemoteLogManager$RLMCopyTask");
        Object copier = unsafe.allocateInstance(task);
        for (Class<?> declares : new Class<?>[] {task, task.getSuperclass()})
            for (Field each : declares.getDeclaredFields())
                if (each.getName().equals("logger"))
                    unsafe.putObject(copier, unsafe.objectFieldOffset(each), LoggerFactory.getLogger("copier"));
        Method asks = task.getDeclaredMethod(
            "isEligibleForUpload", LogConfig.class, LogSegment.class, long.class, long.class, long.class);
        asks.setAccessible(true);
        Aged segment = (Aged) unsafe.allocateInstance(Aged.class);
        for (long lagMs : new long[] {-1, 0, 1, 100})
            for (long lagBytes : new long[] {-1, 0, 1, 100})
                for (long retentionMs : new long[] {-1, 99})
                    for (long retentionBytes : new long[] {-1, 99}) {
                        LogConfig config = new LogConfig(Map.of(
                            "remote.copy.lag.ms", lagMs, "remote.copy.lag.bytes", lagBytes,
                            "retention.ms", retentionMs, "retention.bytes", retentionBytes));
                        for (long ageMs : new long[] {-5, 0, 1, 98, 99, 100})
                            for (long newerBytes : new long[] {0, 1, 98, 99, 100}) {
                                segment.timestamp = NOW_MS - ageMs;
                                long total = 1000 + newerBytes;
                                Object isCopied = asks.invoke(copier, config, segment, NOW_MS, total, 1000L);
                                System.out.println(
                                    lagMs + "\t" + lagBytes + "\t" + retentionMs + "\t" + retentionBytes + "\t"
                                        + ageMs + "\t" + newerBytes + "\t" + isCopied);
                            }
                    }
    }
}
