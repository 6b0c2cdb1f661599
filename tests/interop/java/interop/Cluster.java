package interop;

import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** The cluster under test, from the environment, with one producer and one reader that all cases share. */
final class Cluster {
    static final String NAMESRV = env("NAMESRV");
    /** A cluster of its own whose broker has autoCreateTopicEnable=false. */
    static final String STRICT_NAMESRV = System.getenv("STRICT_NAMESRV");
    /** Brokers of the cluster: broker-a, broker-a-1, ... */
    static final int BROKERS = Integer.parseInt(System.getenv().getOrDefault("BROKERS", "1"));
    static final boolean APACHE = "apache".equals(System.getenv("TARGET"));

    private static final AtomicInteger SERIAL = new AtomicInteger();
    private static final String RUN = Long.toString(System.currentTimeMillis(), 36);
    private static DefaultMQProducer producer;
    private static DefaultMQPullConsumer reader;

    static String env(String name) {
        String value = System.getenv(name);
        if (value == null) {
            throw new IllegalStateException("environment variable " + name + " is not set");
        }
        return value;
    }

    /** A name that no other case and no earlier run has used. */
    static String unique(String base) {
        return base + "-" + RUN + "-" + SERIAL.incrementAndGet();
    }

    /** Gives every client its own connection and the route refresh of a test's patience. */
    static <C extends ClientConfig> C configure(C client) {
        client.setNamesrvAddr(NAMESRV);
        client.setInstanceName(unique("instance"));
        client.setPollNameServerInterval(1000);
        return client;
    }

    static synchronized DefaultMQProducer producer() throws MQClientException {
        if (producer == null) {
            DefaultMQProducer created = configure(new DefaultMQProducer(unique("producer")));
            created.setSendMsgTimeout(30_000);
            created.start();
            producer = created;
        }
        return producer;
    }

    static synchronized DefaultMQPullConsumer reader() throws MQClientException {
        if (reader == null) {
            DefaultMQPullConsumer created = configure(new DefaultMQPullConsumer(unique("reader")));
            created.start();
            reader = created;
        }
        return reader;
    }

    static synchronized void shutdown() {
        if (producer != null) {
            producer.shutdown();
        }
        if (reader != null) {
            reader.shutdown();
        }
    }

    /** Creates a topic as an operator would, with so many queues on every broker, and waits until clients can see all of them. */
    static String createTopic(String base, int queues) throws Exception {
        String topic = unique(base);
        Versioned.createTopic(producer(), "TBW102", topic, queues);
        awaitQueues(topic, queues * BROKERS);
        return topic;
    }

    static List<MessageQueue> awaitQueues(String topic, int queues) throws Exception {
        List<MessageQueue> found = new ArrayList<>();
        Check.within(10, "route of " + topic + " shows " + queues + " queues", () -> {
            found.clear();
            try {
                found.addAll(reader().fetchSubscribeMessageQueues(topic));
            } catch (MQClientException routeMissing) {
                return false;
            }
            return found.size() == queues;
        });
        found.sort(Comparator.comparingInt(MessageQueue::getQueueId));
        return found;
    }

    static List<MessageQueue> queues(String topic) throws Exception {
        List<MessageQueue> queues = new ArrayList<>(reader().fetchSubscribeMessageQueues(topic));
        queues.sort(Comparator.comparingInt(MessageQueue::getQueueId));
        return queues;
    }

    /** Everything in the topic, in queue and offset order. */
    static List<MessageExt> readAll(String topic) throws Exception {
        List<MessageExt> all = new ArrayList<>();
        for (MessageQueue queue : queues(topic)) {
            long offset = reader().minOffset(queue);
            long end = reader().maxOffset(queue);
            while (offset < end) {
                PullResult pulled = reader().pull(queue, "*", offset, 32, 10_000);
                Check.that(pulled.getPullStatus() == PullStatus.FOUND,
                    "pull of " + queue + " at " + offset + " of " + end + " answered " + pulled.getPullStatus());
                for (MessageExt message : pulled.getMsgFoundList()) {
                    Check.equal("queue offset in " + queue, offset, message.getQueueOffset());
                    offset++;
                    all.add(message);
                }
                Check.equal("next offset of " + queue, offset, pulled.getNextBeginOffset());
            }
        }
        return all;
    }

    /** Waits until the topic holds {@code count} messages and returns them by the id their producer gave them. */
    static Map<String, MessageExt> readById(String topic, int count) throws Exception {
        Check.within(20, topic + " holds " + count + " messages", () -> stored(topic) >= count);
        Map<String, MessageExt> byId = new TreeMap<>();
        for (MessageExt message : readAll(topic)) {
            Check.that(byId.put(message.getMsgId(), message) == null, "stored twice: " + message.getMsgId());
        }
        Check.equal("messages in " + topic, count, byId.size());
        return byId;
    }

    static long stored(String topic) throws Exception {
        long sum = 0;
        for (MessageQueue queue : queues(topic)) {
            sum += reader().maxOffset(queue) - reader().minOffset(queue);
        }
        return sum;
    }

    /**
     * Has the harness stop and start the broker under test, {@code restart} (SIGTERM) or {@code kill9}, or do something else with
     * a node: {@code start}, {@code stop}, {@code kill} and its name.
     */
    static void control(String... action) throws Exception {
        List<String> command = new ArrayList<>(List.of(action));
        command.add(0, env("BROKER_CTL"));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        process.getOutputStream().close();
        byte[] output = process.getInputStream().readAllBytes();
        String what = "broker-ctl " + String.join(" ", action);
        Check.that(process.waitFor(90, TimeUnit.SECONDS), what + " does not end");
        Check.that(process.exitValue() == 0, what + ": " + new String(output).trim());
    }
}
