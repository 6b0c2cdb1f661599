package interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers that run while the broker is killed and remember what was acknowledged, and where it lies. */
final class Load {
    private static final int QUEUES = 4;
    private static final int THREADS = 4;

    final String topic;
    private final Case c;
    private final AtomicInteger number = new AtomicInteger();
    /** "queue offset": the message. */
    private final Map<String, Message> acknowledged = new ConcurrentHashMap<>();

    Load(Case c) throws Exception {
        this.c = c;
        topic = c.topic(QUEUES);
    }

    int acknowledged() {
        return acknowledged.size();
    }

    interface Action {
        void run() throws Exception;
    }

    /** Sends singles and batches, and does {@code meanwhile} when {@code count} more were acknowledged. */
    void run(int count, Action meanwhile) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<MessageQueue> queues = Restart.retrying(() -> Cluster.awaitQueues(topic, QUEUES));
        boolean[] stop = new boolean[1];
        int before = acknowledged();
        for (int t = 0; t < THREADS; t++) {
            // Without retries: what is not acknowledged is not sent again.
            DefaultMQProducer producer = c.producer();
            producer.setRetryTimesWhenSendFailed(0);
            producer.start();
            Thread thread = new Thread(() -> {
                while (!stop[0]) {
                    try {
                        sendOne(producer, queues);
                    } catch (Exception down) {
                        return;
                    }
                }
            });
            thread.start();
            threads.add(thread);
        }
        Check.within(30, count + " sends", () -> acknowledged() >= before + count);
        meanwhile.run();
        stop[0] = true;
        for (Thread each : threads) {
            each.join();
        }
    }

    private void sendOne(DefaultMQProducer producer, List<MessageQueue> queues) throws Exception {
        int first = number.getAndAdd(10);
        MessageQueue queue = queues.get(first / 10 % queues.size());
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < (first % 70 == 0 ? 8 : 1); i++) {
            messages.add(Case.message(topic, "tag", first + i));
        }
        SendResult result = messages.size() == 1 ? producer.send(messages.get(0), queue) : producer.send(messages, queue);
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            return;
        }
        for (int i = 0; i < messages.size(); i++) {
            String place = queue.getQueueId() + " " + (result.getQueueOffset() + i);
            Message other = acknowledged.put(place, messages.get(i));
            Check.that(other == null, "acknowledged twice: " + place);
        }
    }

    /** Everything that was acknowledged is at its place; offsets have no gap; nothing is there twice. */
    void verify() throws Exception {
        Restart.retrying(() -> Cluster.awaitQueues(topic, QUEUES));
        Map<String, MessageExt> stored = new TreeMap<>();
        Map<Integer, String> numbers = new TreeMap<>();
        for (MessageExt each : Restart.retrying(() -> Cluster.readAll(topic))) {
            String place = each.getQueueId() + " " + each.getQueueOffset();
            stored.put(place, each);
            String other = numbers.put(each.getFlag(), place);
            Check.that(other == null, "message " + each.getFlag() + " is at " + other + " and at " + place);
        }
        acknowledged.forEach((place, message) -> {
            MessageExt got = stored.get(place);
            Check.that(got != null, acknowledged() + " acknowledged, " + stored.size() + " there, lost: " + place);
            Check.same(message, got);
        });
    }
}
