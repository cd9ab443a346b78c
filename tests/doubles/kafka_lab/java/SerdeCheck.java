import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;

/**
 * Kafka's own serde of __remote_log_metadata as a accepted_texts.
 * Reads: count int32, then count times length int32 and bytes. Answers each: accepted int8 (1 or 0), length int32, UTF-8:
 * what it decoded, or the class of the error.
 */
public final class SerdeCheck {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        RemoteLogMetadataSerde serde = new RemoteLogMetadataSerde();
        int count = in.readInt();
        for (int i = 0; i < count; i++) {
            byte[] value = new byte[in.readInt()];
            in.readFully(value);
            boolean accepted;
            String text;
            try {
                RemoteLogMetadata decoded = serde.deserialize(value);
                text = decoded.toString();
                accepted = true;
            } catch (Throwable refused) {
                text = refused.getClass().getName() + ": " + refused.getMessage();
                accepted = false;
            }
            byte[] answer = text.getBytes(StandardCharsets.UTF_8);
            out.writeByte(accepted ? 1 : 0);
            out.writeInt(answer.length);
            out.write(answer);
        }
        out.flush();
        System.exit(0);
    }
}
