package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** What one case creates; all of it is shut down when the case ends. */
final class Case {
    /** What a consumer received: the message and when. */
    static final class Received {
        final MessageExt message;
        final long atMillis = System.currentTimeMillis();

        Received(MessageExt message) {
            this.message = message;
        }
    }

    /**
     * Seconds until a started consumer must have its messages. A client whose first look at the group came too early looks again
     * after 20 s.
     */
    static final double PATIENCE = 45;

    private final String name;
    private final Deque<Runnable> closers = new ArrayDeque<>();

    Case(String name) {
        this.name = name.replaceAll("[^A-Za-z0-9_-]", "-");
    }

    synchronized void onClose(Runnable closer) {
        closers.push(closer);
    }

    synchronized void close() {
        while (!closers.isEmpty()) {
            try {
                closers.pop().run();
            } catch (RuntimeException ignored) {
                // The case has its result already.
            }
        }
    }

    String topic(int queues) throws Exception {
        return Cluster.createTopic(name, queues);
    }

    String group() {
        return Cluster.unique(name + "-group");
    }

    DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = Cluster.configure(new DefaultMQProducer(group()));
        onClose(producer::shutdown);
        return producer;
    }

    /** A push consumer that is not started yet; it begins at the first message. */
    DefaultMQPushConsumer push(String group) {
        DefaultMQPushConsumer consumer = Cluster.configure(new DefaultMQPushConsumer(group));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(4);
        consumer.setConsumeThreadMax(4);
        onClose(consumer::shutdown);
        return consumer;
    }

    DefaultLitePullConsumer litePull(String group) {
        DefaultLitePullConsumer consumer = Cluster.configure(new DefaultLitePullConsumer(group));
        onClose(consumer::shutdown);
        return consumer;
    }

    /** Subscribes, collects into {@code inbox} whatever arrives, and starts. */
    void collect(DefaultMQPushConsumer consumer, String topic, String tags, Inbox inbox) throws Exception {
        consumer.subscribe(topic, tags);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    static int assigned(DefaultMQPushConsumer consumer, String topic) {
        int count = 0;
        for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl().getProcessQueueTable().keySet()) {
            if (queue.getTopic().equals(topic)) {
                count++;
            }
        }
        return count;
    }

    static void awaitAssigned(DefaultMQPushConsumer consumer, String topic, int queues) throws Exception {
        Check.within(PATIENCE, queues + " queues of " + topic + " assigned", () -> assigned(consumer, topic) == queues);
    }

    /**
     * Waits until the consumer reads its retry topic. The broker creates that topic when it first hears of the group; a client
     * whose first look at the route was earlier would look again with its next rebalance, up to 20 s later.
     */
    static void awaitRetryQueue(DefaultMQPushConsumer consumer) throws Exception {
        String topic = "%RETRY%" + consumer.getConsumerGroup();
        Check.within(25, "the queue of " + topic + " assigned", () -> {
            if (assigned(consumer, topic) == 1) {
                return true;
            }
            Thread.sleep(300);
            consumer.getDefaultMQPushConsumerImpl().doRebalance();
            return false;
        });
    }

    /** A message whose every part can be told apart from its neighbours'. */
    static Message message(String topic, String tag, int i) {
        Message message = new Message(topic, tag, "key-" + i + " order-" + i % 7, ("body \u00e9\u4e2d " + i).getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("number", Integer.toString(i));
        message.putUserProperty("text", "a b=c;\u4e2d\u6587 " + i);
        message.setFlag(i);
        return message;
    }

    static SendResult send(Message message) throws Exception {
        return sent(Cluster.producer().send(message));
    }

    static SendResult sent(SendResult result) {
        Check.equal("send status", SendStatus.SEND_OK, result.getSendStatus());
        return result;
    }

    /** Sends {@code count} numbered messages to every queue in turn. */
    static List<Message> sendSome(String topic, String tag, int from, int count) throws Exception {
        List<Message> sent = new ArrayList<>();
        List<MessageQueue> queues = Cluster.producer().fetchPublishMessageQueues(topic);
        for (int i = from; i < from + count; i++) {
            Message message = message(topic, tag, i);
            sent(Cluster.producer().send(message, queues.get(i % queues.size())));
            sent.add(message);
        }
        return sent;
    }

    /** Messages received, by the id their producer gave them. */
    static final class Inbox {
        private final Map<String, List<Received>> byId = new ConcurrentHashMap<>();
        private final List<Received> inOrder = new ArrayList<>();

        void put(MessageExt message) {
            Received received = new Received(message);
            synchronized (inOrder) {
                inOrder.add(received);
                byId.computeIfAbsent(message.getMsgId(), id -> new ArrayList<>()).add(received);
            }
        }

        List<Received> all() {
            synchronized (inOrder) {
                return new ArrayList<>(inOrder);
            }
        }

        int distinct() {
            return byId.size();
        }

        boolean has(Message sent) {
            return byId.containsKey(id(sent));
        }

        /** Every copy of the message that arrived, oldest first. */
        List<Received> copies(Message sent) {
            synchronized (inOrder) {
                return new ArrayList<>(byId.getOrDefault(id(sent), new ArrayList<>()));
            }
        }

        void awaitAll(List<Message> sent, double seconds) throws Exception {
            try {
                Check.within(seconds, "all arrive", () -> sent.stream().allMatch(this::has));
            } catch (AssertionError e) {
                long missing = sent.stream().filter(each -> !has(each)).count();
                throw new AssertionError(missing + " of " + sent.size() + " messages did not arrive within " + seconds + " s");
            }
        }

        /** All of {@code sent} arrive unchanged, each exactly once, and nothing else does. */
        void expectExactly(List<Message> sent, double seconds) throws Exception {
            awaitAll(sent, seconds);
            Thread.sleep(300);
            for (Message each : sent) {
                List<Received> copies = copies(each);
                Check.equal("copies of " + each.getKeys(), 1, copies.size());
                Check.same(each, copies.get(0).message);
            }
            Check.equal("messages received", sent.size(), all().size());
        }

        static String id(Message sent) {
            return sent.getProperty("UNIQ_KEY");
        }
    }
}
