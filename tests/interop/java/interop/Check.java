package interop;

import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Statements that must hold. */
final class Check {
    interface Condition {
        boolean holds() throws Exception;
    }

    interface Action {
        void run() throws Exception;
    }

    /** Properties that client and broker add on the way; WAIT is consumed by the broker. */
    private static final Set<String> ADDED = Set.of("WAIT", "UNIQ_KEY", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME",
        "MSG_REGION", "TRACE_ON", "CLUSTER", "DELAY", "REAL_TOPIC", "REAL_QID", "RETRY_TOPIC", "ORIGIN_MESSAGE_ID",
        "RECONSUME_TIME", "MAX_RECONSUME_TIMES");

    static void that(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    static void equal(String what, Object expected, Object actual) {
        boolean same = expected instanceof Number && actual instanceof Number
            ? ((Number) expected).longValue() == ((Number) actual).longValue()
            : Objects.equals(expected, actual);
        that(same, what + ": expected " + expected + ", got " + actual);
    }

    static void between(String what, long low, long high, long actual) {
        that(low <= actual && actual < high, what + ": expected " + low + " to " + high + ", got " + actual);
    }

    /** Waits until the condition holds; returns the milliseconds that took. */
    static long within(double seconds, String what, Condition condition) throws Exception {
        long begin = System.nanoTime();
        while (!condition.holds()) {
            that((System.nanoTime() - begin) / 1e9 < seconds, "not within " + seconds + " s: " + what);
            Thread.sleep(20);
        }
        return (System.nanoTime() - begin) / 1_000_000;
    }

    static <E extends Exception> E fails(Class<E> kind, String what, Action action) throws Exception {
        try {
            action.run();
        } catch (Exception e) {
            if (kind.isInstance(e)) {
                return kind.cast(e);
            }
            throw e;
        }
        throw new AssertionError(what + " did not fail");
    }

    /** The message that arrived is the message that was sent: topic, flag, body and the producer's properties. */
    static void same(Message sent, MessageExt got) {
        equal("topic", sent.getTopic(), got.getTopic());
        equal("flag", sent.getFlag(), got.getFlag());
        equal("properties", own(sent), own(got));
        that(Arrays.equals(sent.getBody(), got.getBody()),
            "body of " + got.getMsgId() + " differs: sent " + sent.getBody().length + " bytes, got " + got.getBody().length);
        that(got.getStoreTimestamp() > 0 && got.getBornTimestamp() > 0, "timestamps missing: " + got);
        that(got.getBornHostString().startsWith("127."), "born host " + got.getBornHostString());
    }

    static Map<String, String> own(Message message) {
        Map<String, String> own = new TreeMap<>(message.getProperties());
        own.keySet().removeAll(ADDED);
        return own;
    }
}
