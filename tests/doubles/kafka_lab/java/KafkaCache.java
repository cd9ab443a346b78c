import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataCache;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;

/**
 * What Kafka's own cache of remote log metadata knows after it was told records, one partition beside the other.
 * Reads: sequences int32, and for each: count int32, then count times length int32 and bytes of a value, then
 * lookups int32: so many offsets, from 0 on, are looked up under each epoch. Answers with lines: "sequence",
 * "partition TOPIC_ID NUMBER", "segment ID STATE", "epoch NUMBER HIGHEST ID..." (HIGHEST "-": none), "found EPOCH OFFSET
 * ID", each behind "> ": what the cache itself logs is among them. Most methods of the cache are its package's own, and are called all the same.
 */
public final class KafkaCache {
    private static final Method ADD = method("addCopyInProgressSegment", RemoteLogSegmentMetadata.class);
    private static final Method UPDATE = method("updateRemoteLogSegmentMetadata", RemoteLogSegmentMetadataUpdate.class);
    private static final Method READY = method("markInitialized");
    private static final Method ALL = method("listAllRemoteLogSegments");
    private static final Method LIST = method("listRemoteLogSegments", int.class);
    private static final Method HIGHEST = method("highestOffsetForEpoch", int.class);
    private static final Method LOOKUP = method("remoteLogSegmentMetadata", int.class, long.class);

    public static void main(String[] arguments) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        PrintStream out = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false, "UTF-8");
        int sequences = in.readInt();
        for (int i = 0; i < sequences; i++) {
            out.println("> sequence");
            tell(in, out);
        }
        out.flush();
        System.exit(0);
    }

    private static void tell(DataInputStream in, PrintStream out) throws Exception {
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        Map<TopicIdPartition, RemoteLogMetadataCache> caches = new LinkedHashMap<>();
        Map<TopicIdPartition, TreeSet<Integer>> epochs = new LinkedHashMap<>();
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            byte[] value = new byte[in.readInt()];
            in.readFully(value);
            RemoteLogMetadata record = serde.deserialize(value);
            TopicIdPartition where = record.topicIdPartition();
            if (!caches.containsKey(where)) {
                caches.put(where, new RemoteLogMetadataCache());
                READY.invoke(caches.get(where));
                epochs.put(where, new TreeSet<>());
            }
            if (record instanceof RemoteLogSegmentMetadata) {
                epochs.get(where).addAll(((RemoteLogSegmentMetadata) record).segmentLeaderEpochs().keySet());
                ADD.invoke(caches.get(where), record);
                continue;
            }
            try {
                UPDATE.invoke(caches.get(where), record);
            } catch (InvocationTargetException thrown) {
                if (!(thrown.getCause() instanceof RemoteResourceNotFoundException)) {
                    throw thrown;
                }
                // What a broker logs and drops.
            }
        }
        int lookups = in.readInt();
        for (Map.Entry<TopicIdPartition, RemoteLogMetadataCache> entry : caches.entrySet()) {
            out.println("> partition " + entry.getKey().topicId() + " " + entry.getKey().partition());
            show(entry.getValue(), epochs.get(entry.getKey()), lookups, out);
        }
    }

    private static void show(RemoteLogMetadataCache cache, TreeSet<Integer> epochs, int lookups, PrintStream out)
            throws Exception {
        Iterator<?> all = (Iterator<?>) ALL.invoke(cache);
        while (all.hasNext()) {
            RemoteLogSegmentMetadata segment = (RemoteLogSegmentMetadata) all.next();
            out.println("> segment " + id(segment) + " " + segment.state());
        }
        for (int epoch : epochs) {
            Optional<?> highest = (Optional<?>) HIGHEST.invoke(cache, epoch);
            StringBuilder line = new StringBuilder("> epoch " + epoch + " " + (highest.isPresent() ? highest.get() : "-"));
            Iterator<?> listed = (Iterator<?>) LIST.invoke(cache, epoch);
            while (listed.hasNext()) {
                line.append(" ").append(id(listed.next()));
            }
            out.println(line);
            for (int offset = 0; offset < lookups; offset++) {
                Optional<?> found = (Optional<?>) LOOKUP.invoke(cache, epoch, (long) offset);
                if (found.isPresent()) {
                    out.println("> found " + epoch + " " + offset + " " + id(found.get()));
                }
            }
        }
    }

    private static String id(Object segment) {
        return ((RemoteLogSegmentMetadata) segment).remoteLogSegmentId().id().toString();
    }

    private static Method method(String name, Class<?>... parameters) {
        try {
            Method found = RemoteLogMetadataCache.class.getDeclaredMethod(name, parameters);
            found.setAccessible(true);
            return found;
        } catch (NoSuchMethodException missing) {
            throw new IllegalStateException(missing);
        }
    }
}
