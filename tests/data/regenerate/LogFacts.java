import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.SerializationFeature;
import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/** Prints as JSON what Kafka's own classes say of one log directory. Run it on a copy: some of them write. */
public class LogFacts {
    public static void main(String[] args) throws Exception {
        Map<String, Object> partitions = new TreeMap<>();
        for (File directory : new File(args[0]).listFiles(File::isDirectory))
            if (new File(directory, "partition.metadata").exists())
                partitions.put(directory.getName(), partition(directory));
        Map<String, Object> facts = Map.of("partitions", partitions);
        new ObjectMapper().enable(SerializationFeature.ORDER_MAP_ENTRIES_BY_KEYS).writeValue(System.out, facts);
    }

    private static Map<String, Object> partition(File directory) throws Exception {
        Map<String, Object> facts = new TreeMap<>();
        Map<String, Object> files = new TreeMap<>();
        for (File file : directory.listFiles())
            files.put(file.getName(), file.length());
        facts.put("files", files);
        facts.put("partition_metadata", Files.readString(directory.toPath().resolve("partition.metadata")).strip());
        List<long[]> epochs = new ArrayList<>();
        if (new File(directory, "leader-epoch-checkpoint").exists())
            new LeaderEpochCheckpointFile(LeaderEpochCheckpointFile.newFile(directory), null)
                .read().forEach(entry -> epochs.add(new long[] {entry.epoch(), entry.startOffset()}));
        facts.put("leader_epochs", epochs);
        Map<String, Object> snapshots = new TreeMap<>();
        for (File file : named(directory, ".snapshot"))
            snapshots.put(file.getName(), producers(file));
        facts.put("producer_snapshots", snapshots);
        facts.put("segments", segments(named(directory, ".log")));
        return facts;
    }

    private static List<File> named(File directory, String suffix) {
        return Arrays.stream(directory.listFiles()).filter(file -> file.getName().endsWith(suffix)).sorted().toList();
    }

    private static List<Map<String, Object>> producers(File snapshot) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        ProducerStateManager.readSnapshot(snapshot).forEach(entry -> found.add(Map.of(
            "producer_id", entry.producerId(), "epoch", entry.producerEpoch(), "last_offset", entry.lastDataOffset(),
            "timestamp", entry.lastTimestamp(), "txn_first_offset", entry.currentTxnFirstOffset().orElse(-1))));
        return found;
    }

    private static List<Map<String, Object>> segments(List<File> logs) throws Exception {
        List<Map<String, Object>> found = new ArrayList<>();
        for (int i = 0; i < logs.size(); i++) {
            Map<String, Object> facts = segment(logs.get(i));
            boolean active = i == logs.size() - 1;
            facts.put("active", active);
            facts.put("end_offset", active ? facts.get("last_offset") : baseOffset(logs.get(i + 1)) - 1);
            found.add(facts);
        }
        return found;
    }

    private static Map<String, Object> segment(File log) throws Exception {
        long base = baseOffset(log);
        long last = base - 1, maxTimestamp = -1, records = 0, badCrc = 0;
        int batches = 0, valid = 0, aborts = 0, commits = 0;
        Map<String, Integer> codecs = new TreeMap<>();
        Map<Integer, Integer> epochs = new TreeMap<>();
        Map<String, Object> facts = new TreeMap<>();
        try (FileRecords file = FileRecords.open(log, false)) {
            for (FileChannelRecordBatch batch : file.batches()) {
                batches++;
                valid = batch.position() + batch.sizeInBytes();
                last = batch.lastOffset();
                maxTimestamp = Math.max(maxTimestamp, batch.maxTimestamp());
                codecs.merge(batch.compressionType().name, 1, Integer::sum);
                epochs.merge(batch.partitionLeaderEpoch(), 1, Integer::sum);
                if (!batch.isValid())
                    badCrc++;
                for (Record record : batch) {
                    records++;
                    if (batch.isControlBatch()) {
                        ByteBuffer key = record.key();
                        ControlRecordType type = ControlRecordType.parse(key);
                        aborts += type == ControlRecordType.ABORT ? 1 : 0;
                        commits += type == ControlRecordType.COMMIT ? 1 : 0;
                    }
                }
            }
        } catch (RuntimeException error) {
            facts.put("tail_error", String.valueOf(error.getMessage()));
        }
        facts.putAll(Map.of("base_offset", base, "last_offset", last, "file_size", log.length(), "valid_bytes", valid));
        facts.putAll(Map.of("batches", batches, "records", records, "batches_crc_bad", badCrc));
        facts.putAll(Map.of("max_timestamp", maxTimestamp, "codec_batches", codecs, "leader_epoch_batches", epochs));
        facts.putAll(Map.of("abort_markers", aborts, "commit_markers", commits, "log_sha256", sha256(log.toPath())));
        facts.put("txn_index", abortedTransactions(log, base));
        return facts;
    }

    private static List<long[]> abortedTransactions(File log, long base) throws Exception {
        List<long[]> found = new ArrayList<>();
        File file = new File(log.getPath().replaceAll("\\.log$", ".txnindex"));
        if (file.exists())
            try (TransactionIndex index = new TransactionIndex(base, file)) {
                index.allAbortedTxns().forEach(aborted -> found.add(new long[] {
                    aborted.producerId(), aborted.firstOffset(), aborted.lastOffset(), aborted.lastStableOffset()}));
            }
        return found;
    }

    private static long baseOffset(File log) {
        return Long.parseLong(log.getName().substring(0, 20));
    }

    private static String sha256(Path file) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(Files.readAllBytes(file)));
    }
}
