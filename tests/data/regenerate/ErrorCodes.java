import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;

/** Code, name, and whether Kafka's own clients try again: what `org.apache.kafka.common.protocol.Errors` holds. */
class ErrorCodes {
    public static void main(String[] arguments) {
        for (Errors error : Errors.values())
            System.out.println(error.code() + "\t" + error + "\t" + (error.exception() instanceof RetriableException));
    }
}
