package interop;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Push consumers: concurrent, orderly, broadcasting, filtered by tag, and where a new one starts. */
final class PushConsumers {
    static void add(Suite suite) {
        suite.add("push-concurrent", PushConsumers::concurrent);
        suite.add("push-orderly", PushConsumers::orderly);
        suite.add("push-broadcasting", PushConsumers::broadcasting);
        suite.add("push-idle-then-message", PushConsumers::idleThenMessage);
        suite.add("push-tags", PushConsumers::tags);
        suite.add("push-tags-of-equal-hash", PushConsumers::tagsOfEqualHash);
        suite.add("push-from-first", c -> start(c, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET));
        suite.add("push-from-last", c -> start(c, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET));
        suite.add("push-from-timestamp", c -> start(c, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP));
        suite.add("push-new-group-on-young-topic", PushConsumers::newGroupOnYoungTopic);
        suite.add("push-continues-where-it-stopped", PushConsumers::continues);
    }

    private static void concurrent(Case c) throws Exception {
        String topic = c.topic(4);
        List<Message> sent = Case.sendSome(topic, "tag", 0, 200);
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group());
        c.collect(consumer, topic, "*", inbox);
        sent.addAll(Case.sendSome(topic, "tag", 200, 200));
        inbox.expectExactly(sent, Case.PATIENCE);
    }

    /** Each queue's messages arrive in their order, one at a time, while other queues go on. */
    private static void orderly(Case c) throws Exception {
        String topic = c.topic(4);
        List<Message> sent = Case.sendSome(topic, "tag", 0, 100);
        Case.Inbox inbox = new Case.Inbox();
        Map<Integer, Thread> inQueue = new ConcurrentHashMap<>();
        List<String> overlaps = new ArrayList<>();
        DefaultMQPushConsumer consumer = c.push(c.group());
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            int queue = messages.get(0).getQueueId();
            if (inQueue.putIfAbsent(queue, Thread.currentThread()) != null) {
                synchronized (overlaps) {
                    overlaps.add("queue " + queue);
                }
            }
            messages.forEach(inbox::put);
            inQueue.remove(queue);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        sent.addAll(Case.sendSome(topic, "tag", 100, 100));
        inbox.expectExactly(sent, Case.PATIENCE);
        Check.that(overlaps.isEmpty(), "two messages of one queue at a time: " + overlaps);
        expectOrder(inbox);
    }

    static void expectOrder(Case.Inbox inbox) {
        Map<Integer, Long> last = new HashMap<>();
        for (Case.Received each : inbox.all()) {
            MessageExt message = each.message;
            long before = last.getOrDefault(message.getQueueId(), -1L);
            Check.that(message.getQueueOffset() > before, "queue " + message.getQueueId() + ": " + message.getQueueOffset() + " after " + before);
            last.put(message.getQueueId(), message.getQueueOffset());
        }
    }

    private static void broadcasting(Case c) throws Exception {
        String topic = c.topic(4);
        String group = c.group();
        List<Case.Inbox> inboxes = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            Case.Inbox inbox = new Case.Inbox();
            DefaultMQPushConsumer consumer = c.push(group);
            Versioned.broadcasting(consumer);
            c.collect(consumer, topic, "*", inbox);
            Case.awaitAssigned(consumer, topic, 4);
            inboxes.add(inbox);
        }
        List<Message> sent = Case.sendSome(topic, "tag", 0, 100);
        for (Case.Inbox inbox : inboxes) {
            inbox.expectExactly(sent, Case.PATIENCE);
        }
    }

    /** A pull that waits at the broker is answered when the message comes, not when the wait is over. */
    private static void idleThenMessage(Case c) throws Exception {
        String topic = c.topic(1);
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(c.group());
        c.collect(consumer, topic, "*", inbox);
        inbox.awaitAll(Case.sendSome(topic, "tag", 0, 1), Case.PATIENCE);
        for (int i = 1; i <= 5; i++) {
            Thread.sleep(1500);
            Message message = Case.message(topic, "tag", i);
            Case.send(message);
            long millis = Check.within(10, "message " + i, () -> inbox.has(message));
            Check.between("milliseconds until an idle consumer has message " + i, 0, 1000, millis);
        }
    }

    private static void tags(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> wanted = new ArrayList<>();
        for (int i = 0; i < 20; i++) {
            wanted.addAll(Case.sendSome(topic, "TagA", i * 10, 2));
            Case.sendSome(topic, "TagB", i * 10 + 2, 2);
            wanted.addAll(Case.sendSome(topic, "TagC", i * 10 + 4, 2));
            Case.sendSome(topic, null, i * 10 + 6, 1);
        }
        Case.Inbox inbox = new Case.Inbox();
        c.collect(c.push(c.group()), topic, "TagA || TagC", inbox);
        inbox.expectExactly(wanted, Case.PATIENCE);
        // Also while the consumer waits at the broker: the tag it does not want must not wake it for nothing, the other must.
        Case.sendSome(topic, "TagB", 1000, 4);
        wanted.addAll(Case.sendSome(topic, "TagC", 1004, 4));
        inbox.expectExactly(wanted, Case.PATIENCE);
    }

    /** "Aa" and "BB" have one Java hash code: the broker lets both through, the client drops one and its offset goes on. */
    private static void tagsOfEqualHash(Case c) throws Exception {
        Check.equal("hash codes", "Aa".hashCode(), "BB".hashCode());
        String topic = c.topic(1);
        Case.sendSome(topic, "BB", 0, 100);
        Case.Inbox inbox = new Case.Inbox();
        String group = c.group();
        DefaultMQPushConsumer consumer = c.push(group);
        consumer.setPersistConsumerOffsetInterval(500);
        c.collect(consumer, topic, "Aa", inbox);
        List<Message> wanted = Case.sendSome(topic, "Aa", 100, 3);
        Case.sendSome(topic, "BB", 103, 3);
        inbox.expectExactly(wanted, Case.PATIENCE);
        MessageQueue queue = Cluster.queues(topic).get(0);
        // Its offset goes on with the answer of a pull, which the broker may hold for 15 s, and is stored 10 s after its start at first.
        Check.within(Case.PATIENCE, "the group's progress at the broker passes the dropped messages",
            () -> consumer.getDefaultMQPushConsumerImpl().getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE) >= 103);
    }

    /**
     * Where a consumer without progress starts. A broadcasting consumer keeps its own progress, so it always asks for the
     * first offset (0), the last (code 30) or the one at a time (code 29).
     */
    private static void start(Case c, ConsumeFromWhere where) throws Exception {
        String topic = c.topic(2);
        List<Message> wanted = new ArrayList<>();
        List<Message> first = Case.sendSome(topic, "tag", 0, 20);
        // consumeTimestamp has a resolution of one second: leave a whole second without messages on both sides of it.
        Thread.sleep(2100);
        long middle = System.currentTimeMillis();
        Thread.sleep(1100);
        List<Message> second = Case.sendSome(topic, "tag", 20, 20);
        DefaultMQPushConsumer consumer = c.push(c.group());
        Versioned.broadcasting(consumer);
        consumer.setConsumeFromWhere(where);
        switch (where) {
            case CONSUME_FROM_FIRST_OFFSET:
                wanted.addAll(first);
                wanted.addAll(second);
                break;
            case CONSUME_FROM_TIMESTAMP:
                consumer.setConsumeTimestamp(UtilAll.timeMillisToHumanString3(middle));
                wanted.addAll(second);
                break;
            default:
        }
        Case.Inbox inbox = new Case.Inbox();
        c.collect(consumer, topic, "*", inbox);
        Case.awaitAssigned(consumer, topic, 2);
        wanted.addAll(Case.sendSome(topic, "tag", 40, 20));
        inbox.expectExactly(wanted, Case.PATIENCE);
    }

    /**
     * A new clustering group on a topic whose first message is still there and recent starts at 0, whatever it asked for: the
     * broker answers its first offset query with 0, so that messages sent before the consumer's start are not skipped.
     */
    private static void newGroupOnYoungTopic(Case c) throws Exception {
        String topic = c.topic(2);
        List<Message> sent = Case.sendSome(topic, "tag", 0, 20);
        for (ConsumeFromWhere where : new ConsumeFromWhere[] {ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP}) {
            DefaultMQPushConsumer consumer = c.push(c.group());
            consumer.setConsumeFromWhere(where);
            Case.Inbox inbox = new Case.Inbox();
            c.collect(consumer, topic, "*", inbox);
            inbox.expectExactly(sent, Case.PATIENCE);
        }
    }

    private static void continues(Case c) throws Exception {
        String topic = c.topic(2);
        String group = c.group();
        List<Message> first = Case.sendSome(topic, "tag", 0, 50);
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(group);
        c.collect(consumer, topic, "*", inbox);
        inbox.expectExactly(first, Case.PATIENCE);
        consumer.shutdown();
        List<Message> second = Case.sendSome(topic, "tag", 50, 50);
        Case.Inbox next = new Case.Inbox();
        c.collect(c.push(group), topic, "*", next);
        next.expectExactly(second, Case.PATIENCE);
    }
}
