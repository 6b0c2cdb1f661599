package interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;

/** Messages of every kind, groups on their way, and what must be true of them whoever opens the store. */
final class Contents {
    /** The delay levels that are used, and their seconds. */
    private static final int[][] LEVELS = {{2, 5}, {5, 60}};
    private static final long RETRY_MILLIS = 10_000;

    private final Case c;
    /** Topics in which nothing moves by itself. */
    final List<String> topics = new ArrayList<>();
    final List<String> groups = new ArrayList<>();
    final String singles;
    private final String batches;
    private final String progress;
    private final String late;
    private final String failing;
    private final String progressGroup;
    private final String failingGroup;
    /** What the group has not consumed yet. */
    private final List<Message> unread = new ArrayList<>();
    private final List<Message> failed = new ArrayList<>();
    private final List<Delayed> delayed = new ArrayList<>();
    private long failedAt;
    SendResult lastSingle;

    private static final class Delayed {
        final Message message;
        final long from;
        final long until;
        final long millis;

        Delayed(Message message, int seconds, long from, long until) {
            this.message = message;
            this.millis = seconds * 1000L;
            this.from = from;
            this.until = until;
        }
    }

    Contents(Case c) throws Exception {
        this.c = c;
        singles = c.topic(4);
        batches = c.topic(2);
        progress = c.topic(3);
        late = c.topic(2);
        failing = c.topic(1);
        String uneven = Cluster.unique("uneven");
        TopicConfig config = new TopicConfig(uneven, 3, 2, 6);
        Snapshot.admin().createAndUpdateTopicConfig(Cluster.env("BROKER"), config);
        Cluster.awaitQueues(uneven, 3);
        topics.addAll(List.of(singles, batches, progress, failing, uneven));
        progressGroup = c.group();
        failingGroup = c.group();
        String strict = c.group();
        SubscriptionGroupConfig group = new SubscriptionGroupConfig();
        group.setGroupName(strict);
        group.setRetryMaxTimes(3);
        group.setConsumeBroadcastEnable(false);
        Snapshot.admin().createAndUpdateSubscriptionGroupConfig(Cluster.env("BROKER"), group);
        groups.addAll(List.of(progressGroup, failingGroup, strict));
        Message message = Case.message(uneven, "tag", 1);
        message.setBody(Producers.random(700_000));
        Case.send(message);
    }

    Snapshot snapshot() throws Exception {
        return Snapshot.of(topics, groups);
    }

    /** Writes some of everything; what waits longest first. */
    void write() throws Exception {
        writeDelayed(1);
        consumeSome();
        failSome();
        append();
        writeDelayed(0);
    }

    /** Sends singles and a batch behind what is there; returns how many. Their offsets have no gap. */
    int append() throws Exception {
        Map<String, Long> next = new TreeMap<>();
        List<MessageQueue> queues = Restart.retrying(() -> Cluster.queues(singles));
        for (MessageQueue queue : queues) {
            next.put(singles + queue.getQueueId(), Cluster.reader().maxOffset(queue));
        }
        int count = 0;
        for (; count < 120; count++) {
            Message message = Case.message(singles, count % 3 == 0 ? "TagA" : "TagB", count);
            MessageQueue queue = queues.get(count % queues.size());
            lastSingle = Case.sent(Cluster.producer().send(message, queue));
            long expected = next.merge(singles + queue.getQueueId(), 1L, Long::sum) - 1;
            Check.equal("offset in " + queue, expected, lastSingle.getQueueOffset());
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 25; i++) {
            batch.add(new Message(batches, "TagC", "key-" + i, ("one of a batch " + i).getBytes(StandardCharsets.UTF_8)));
        }
        Case.sent(Cluster.producer().send(batch));
        return count + batch.size();
    }

    /** A group consumes a part, commits and leaves. */
    private void consumeSome() throws Exception {
        List<Message> first = Case.sendSome(progress, "tag", 0, 60);
        DefaultMQPushConsumer consumer = c.push(progressGroup);
        Case.Inbox inbox = new Case.Inbox();
        c.collect(consumer, progress, "*", inbox);
        inbox.expectExactly(first, Case.PATIENCE);
        consumer.shutdown();
        unread.addAll(Case.sendSome(progress, "tag", 60, 45));
    }

    /** A group hands some messages back: they come again after a while. */
    private void failSome() throws Exception {
        List<Message> sent = Case.sendSome(failing, "tag", 0, 5);
        DefaultMQPushConsumer consumer = c.push(failingGroup);
        Case.Inbox inbox = new Case.Inbox();
        consumer.subscribe(failing, "*");
        consumer.setConsumeMessageBatchMaxSize(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(inbox::put);
            return messages.get(0).getFlag() < 3 ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        inbox.awaitAll(sent, Case.PATIENCE);
        failedAt = System.currentTimeMillis();
        failed.addAll(sent.subList(0, 3));
        // Until they are handed back and the offsets are committed.
        Thread.sleep(500);
        consumer.shutdown();
    }

    private void writeDelayed(int which) throws Exception {
        for (int i = 0; i < 4; i++) {
            Message message = Case.message(late, "tag", which * 10 + i);
            message.setDelayTimeLevel(LEVELS[which][0]);
            long from = System.currentTimeMillis();
            Case.send(message);
            delayed.add(new Delayed(message, LEVELS[which][1], from, System.currentTimeMillis()));
        }
    }

    /** The group goes on where it was. */
    void expectProgress() throws Exception {
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(progressGroup);
        c.collect(consumer, progress, "*", inbox);
        inbox.expectExactly(unread, Case.PATIENCE);
        consumer.shutdown();
        unread.clear();
    }

    /** What was handed back comes again, once, and nothing else does. */
    void expectRetried() throws Exception {
        Case.Inbox inbox = new Case.Inbox();
        DefaultMQPushConsumer consumer = c.push(failingGroup);
        c.collect(consumer, failing, "*", inbox);
        inbox.awaitAll(failed, Case.PATIENCE);
        Thread.sleep(300);
        consumer.shutdown();
        Check.equal("messages handed back", failed.size(), inbox.all().size());
        for (Message each : failed) {
            Case.Received got = inbox.copies(each).get(0);
            Check.equal("attempts", 1, got.message.getReconsumeTimes());
            Check.that(got.atMillis - failedAt > RETRY_MILLIS - 1000, "it came back after " + (got.atMillis - failedAt) + " ms");
        }
    }

    /** Delayed messages arrive once each: when they are due, or as soon as a broker runs again that started at {@code up}. */
    void expectDelayed(long up) throws Exception {
        Map<String, MessageExt> arrived = new TreeMap<>();
        long last = delayed.stream().mapToLong(each -> each.until + each.millis).max().orElse(0);
        double seconds = Math.max(0, last - System.currentTimeMillis()) / 1000.0 + 5;
        Check.within(seconds, delayed.size() + " delayed messages",
            () -> Restart.retrying(() -> Cluster.stored(late)) >= delayed.size());
        Thread.sleep(1200);
        for (MessageExt each : Restart.retrying(() -> Cluster.readAll(late))) {
            Check.that(arrived.put(each.getMsgId(), each) == null, "delivered twice: " + each);
        }
        Check.equal("delayed messages", delayed.size(), arrived.size());
        for (Delayed each : delayed) {
            MessageExt got = arrived.get(Case.Inbox.id(each.message));
            Check.that(got != null, "not delivered: " + each.message);
            Check.same(each.message, got);
            long at = got.getStoreTimestamp();
            Check.that(at >= each.from + each.millis, "due after " + each.millis + " ms, came after " + (at - each.from));
            long limit = Math.max(each.until + each.millis, up) + 2500;
            Check.that(at < limit, "due after " + each.millis + " ms, came after " + (at - each.until) + " ms, " + (at - up) + " ms after the start");
        }
    }
}
